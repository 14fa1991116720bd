"""Geometry-aware image captioning and image-text retrieval for Hugging Face transformers.

Importing the package registers its models with transformers' Auto classes; the classes are imported when used.
"""

from typing import TYPE_CHECKING

from .auto import register
from .lazy import lazy_names

if TYPE_CHECKING:
    from .hub import save_for_hub
    from .models.configuration_ngsan import NGSANConfig
    from .models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
    from .models.pipeline_image_to_text import ImageToTextPipeline
    from .models.processing_ngsan import NGSANProcessor

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "hub": ["save_for_hub"],
        "models.configuration_ngsan": ["NGSANConfig"],
        "models.modeling_ngsan": ["NGSANForConditionalGeneration", "NGSANModel"],
        "models.pipeline_image_to_text": ["ImageToTextPipeline"],
        "models.processing_ngsan": ["NGSANProcessor"],
    },
)

register()
