"""Images with captions from any dataset that the datasets library reads."""
