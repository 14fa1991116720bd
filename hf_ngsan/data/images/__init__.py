"""The reader of `images:SOURCE`: images with captions from any dataset that the datasets library reads."""
