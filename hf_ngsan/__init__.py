"""Geometry-aware image captioning and image-text retrieval for Hugging Face transformers.

Importing the package registers its models with transformers' Auto classes and pipelines. The command line alone, which
answers much without torch, registers them when it loads a model.
"""

from typing import TYPE_CHECKING

from .io import lazy_names
from .registry import is_command_line, register

if TYPE_CHECKING:
    from .guests.captioners import register_guest
    from .io.packaged import packaged_model
    from .loading.hub import save_for_hub
    from .loading.models import load_model
    from .loading.pipelines import CaptioningPipeline, ImageToTextPipeline, VisualQuestionAnsweringPipeline
    from .models.configuration_mcan import MCANConfig
    from .models.configuration_mhsan import MHSANConfig
    from .models.configuration_ngsan import NGSANConfig
    from .models.configuration_nsa_transformer import NSATransformerConfig
    from .models.configuration_rstnet import RSTNetConfig, RSTNetLanguageModelConfig
    from .models.configuration_spatial_captioner import SpatialCaptionerConfig
    from .models.configuration_vision import VisionConfig
    from .models.ensemble import EnsembleForConditionalGeneration
    from .models.image_processing_captioning import CaptioningImageProcessor
    from .models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
    from .models.modeling_mcan import MCANForVisualQuestionAnswering, MCANModel
    from .models.modeling_mhsan import MHSANModel
    from .models.modeling_mhsan_text import MHSANTextConfig, MHSANTextModel
    from .models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
    from .models.modeling_nsa_transformer import NSATransformerForConditionalGeneration, NSATransformerModel
    from .models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
    from .models.modeling_rstnet import RSTNetForConditionalGeneration, RSTNetModel
    from .models.modeling_rstnet_language_model import RSTNetLanguageModel
    from .models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration, SpatialCaptionerModel
    from .models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
    from .models.modeling_vision import VisionModel
    from .models.pipeline_translation import TranslationPipeline
    from .models.processing_mcan import MCANProcessor
    from .models.processing_mhsan import MHSANProcessor
    from .models.processing_ngsan import NGSANProcessor
    from .models.processing_rstnet import RSTNetProcessor
    from .models.processing_spatial_captioner import SpatialCaptionerProcessor
    from .registry import register_model_type
    from .sharing.upload import push_to_hub
    from .tasks.registry import register_task

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__)

if not is_command_line():
    register()
