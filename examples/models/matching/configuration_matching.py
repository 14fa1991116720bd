from hf_ngsan.models.configuration_hub import HubConfig, strict


@strict
class MatchingConfig(HubConfig):
    model_type = "matching"
    remote_classes = {
        "AutoConfig": "configuration_matching.MatchingConfig",
        "AutoModel": "modeling_matching.MatchingModel",
        "AutoProcessor": "processing_matching.MatchingProcessor",
    }

    visual_feature_size: int = 2048
    vocab_size: int = 10000
    hidden_size: int = 64
