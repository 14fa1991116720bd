"""Images with captions from any dataset that the datasets library reads."""

from .loading import load_images

__all__ = ["load_images"]
