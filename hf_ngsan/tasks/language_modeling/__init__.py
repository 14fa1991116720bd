"""Language modeling: the next word of a caption from those before it."""
