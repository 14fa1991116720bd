from .guests.captioners import register_guest as register_guest
from .io.packaged import packaged_model as packaged_model
from .loading.hub import save_for_hub as save_for_hub
from .loading.models import load_model as load_model
from .loading.pipelines import CaptioningPipeline as CaptioningPipeline
from .loading.pipelines import ImageToTextPipeline as ImageToTextPipeline
from .loading.pipelines import QuestionAnsweringPipeline as QuestionAnsweringPipeline
from .loading.pipelines import VisualQuestionAnsweringPipeline as VisualQuestionAnsweringPipeline
from .models.configuration_mcan import MCANConfig as MCANConfig
from .models.configuration_mhsan import MHSANConfig as MHSANConfig
from .models.configuration_ngsan import NGSANConfig as NGSANConfig
from .models.configuration_nsa_transformer import NSATransformerConfig as NSATransformerConfig
from .models.configuration_rstnet import RSTNetConfig as RSTNetConfig
from .models.configuration_rstnet import RSTNetLanguageModelConfig as RSTNetLanguageModelConfig
from .models.configuration_spatial_captioner import SpatialCaptionerConfig as SpatialCaptionerConfig
from .models.configuration_vision import VisionConfig as VisionConfig
from .models.ensemble import EnsembleForConditionalGeneration as EnsembleForConditionalGeneration
from .models.image_processing_captioning import CaptioningImageProcessor as CaptioningImageProcessor
from .models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone as NGSANEfficientNetLiteBackbone
from .models.modeling_efficientnet_lite import NGSANEfficientNetLiteConfig as NGSANEfficientNetLiteConfig
from .models.modeling_mcan import MCANForVisualQuestionAnswering as MCANForVisualQuestionAnswering
from .models.modeling_mcan import MCANModel as MCANModel
from .models.modeling_mhsan import MHSANModel as MHSANModel
from .models.modeling_mhsan_text import MHSANTextConfig as MHSANTextConfig
from .models.modeling_mhsan_text import MHSANTextModel as MHSANTextModel
from .models.modeling_ngsan import NGSANForConditionalGeneration as NGSANForConditionalGeneration
from .models.modeling_ngsan import NGSANModel as NGSANModel
from .models.modeling_nsa_transformer import (
    NSATransformerForConditionalGeneration as NSATransformerForConditionalGeneration,
)
from .models.modeling_nsa_transformer import NSATransformerModel as NSATransformerModel
from .models.modeling_resnext import NGSANResNeXtBackbone as NGSANResNeXtBackbone
from .models.modeling_resnext import NGSANResNeXtConfig as NGSANResNeXtConfig
from .models.modeling_rstnet import RSTNetForConditionalGeneration as RSTNetForConditionalGeneration
from .models.modeling_rstnet import RSTNetModel as RSTNetModel
from .models.modeling_rstnet_language_model import RSTNetLanguageModel as RSTNetLanguageModel
from .models.modeling_spatial_captioner import (
    SpatialCaptionerForConditionalGeneration as SpatialCaptionerForConditionalGeneration,
)
from .models.modeling_spatial_captioner import SpatialCaptionerModel as SpatialCaptionerModel
from .models.modeling_vgg import NGSANVGGBackbone as NGSANVGGBackbone
from .models.modeling_vgg import NGSANVGGConfig as NGSANVGGConfig
from .models.modeling_vision import VisionModel as VisionModel
from .models.pipeline_translation import TranslationPipeline as TranslationPipeline
from .models.processing_mcan import MCANProcessor as MCANProcessor
from .models.processing_mhsan import MHSANProcessor as MHSANProcessor
from .models.processing_ngsan import NGSANProcessor as NGSANProcessor
from .models.processing_rstnet import RSTNetProcessor as RSTNetProcessor
from .models.processing_spatial_captioner import SpatialCaptionerProcessor as SpatialCaptionerProcessor
from .registry import register_model_type as register_model_type
from .sharing.upload import push_to_hub as push_to_hub
from .tasks.registry import register_task as register_task

__version__: str
