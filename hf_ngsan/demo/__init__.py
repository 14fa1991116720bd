"""The demo: trains captioners of synthetic scenes, compares, shares and explains them."""
