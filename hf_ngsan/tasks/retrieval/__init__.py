"""Image-text retrieval: images and captions in one space, indexes and search."""
