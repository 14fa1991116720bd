"""Visual features of images, extracted once into a dataset that training and evaluation read."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from ..loading.provenance import provenance_difference, vision_provenance
    from .extract import ExtractionResult, extract_features
    from .image_list import ExtractionError, ImageChange, ImageList, list_images
    from .vision import check_backbone, load_vision

__getattr__, __dir__, __all__ = lazy_names(__name__)
