"""Geometry-aware image captioning and image-text retrieval for Hugging Face transformers.

Importing the package registers its models with transformers' Auto classes; the classes are imported when used.
"""

import importlib
from typing import TYPE_CHECKING

from .auto import register

if TYPE_CHECKING:
    from .hub import save_for_hub
    from .models.configuration_ngsan import NGSANConfig
    from .models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
    from .models.pipeline_image_to_text import ImageToTextPipeline
    from .models.processing_ngsan import NGSANProcessor

__version__ = "0.1.0"

LOCATIONS = {
    "ImageToTextPipeline": "models.pipeline_image_to_text",
    "NGSANConfig": "models.configuration_ngsan",
    "NGSANForConditionalGeneration": "models.modeling_ngsan",
    "NGSANModel": "models.modeling_ngsan",
    "NGSANProcessor": "models.processing_ngsan",
    "save_for_hub": "hub",
}


def __getattr__(name: str):
    if name not in LOCATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{LOCATIONS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LOCATIONS])


register()

__all__ = [
    "ImageToTextPipeline",
    "NGSANConfig",
    "NGSANForConditionalGeneration",
    "NGSANModel",
    "NGSANProcessor",
    "save_for_hub",
]
