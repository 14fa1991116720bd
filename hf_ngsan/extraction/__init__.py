"""Visual features of a folder of images, written once as a data set that training and evaluation read.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .errors import ExtractionError
    from .extract import ExtractionResult, extract_features
    from .feature_folder import read_extraction
    from .identity import vision_difference, vision_identity
    from .image_list import ImageList, list_images
    from .vision import load_vision

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "errors": ["ExtractionError"],
        "extract": ["ExtractionResult", "extract_features"],
        "feature_folder": ["read_extraction"],
        "identity": ["vision_difference", "vision_identity"],
        "image_list": ["ImageList", "list_images"],
        "vision": ["load_vision"],
    },
)
