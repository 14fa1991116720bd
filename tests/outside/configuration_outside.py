"""Two architectures as in another package: a captioner, and a language model that has only a tokenizer."""

from hf_ngsan.models.configuration_hub import HubConfig, strict
from hf_ngsan.models.configuration_ngsan import NGSANConfig


@strict
class OutsideCaptionerConfig(NGSANConfig):
    model_type = "outside_captioner"
    remote_classes = {
        "AutoConfig": "configuration_outside.OutsideCaptionerConfig",
        "AutoModel": "modeling_outside.OutsideCaptionerModel",
        "AutoModelForImageTextToText": "modeling_outside.OutsideCaptioner",
        "AutoProcessor": "processing_outside.OutsideProcessor",
    }

    loudness: float = 1.0


@strict
class OutsideLanguageModelConfig(HubConfig):
    model_type = "outside_language_model"
    remote_classes = {
        "AutoConfig": "configuration_outside.OutsideLanguageModelConfig",
        "AutoModelForCausalLM": "modeling_outside.OutsideLanguageModel",
    }

    vocab_size: int = 9
    hidden_size: int = 4
