"""Image-text retrieval: a dual encoder embeds images and captions in one space, for indexes and search."""
