"""The demo: captioners of synthetic scenes that are trained, compared, shared and explained."""
