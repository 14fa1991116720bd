from hf_ngsan.models.configuration_hub import CaptionerConfig, strict


@strict
class GlanceConfig(CaptionerConfig):
    model_type = "glance"
    remote_classes = {
        "AutoConfig": "configuration_glance.GlanceConfig",
        "AutoModel": "modeling_glance.GlanceModel",
        "AutoModelForImageTextToText": "modeling_glance.GlanceForConditionalGeneration",
        "AutoProcessor": "processing_glance.GlanceProcessor",
    }

    num_hidden_layers: int = 2
