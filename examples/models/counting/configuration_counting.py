from hf_ngsan.models.configuration_hub import HubConfig, strict


@strict
class CountingConfig(HubConfig):
    """Sizes of a counting model: dimension of a region's features, hidden units, and the largest count."""

    model_type = "counting"
    remote_classes = {
        "AutoConfig": "configuration_counting.CountingConfig",
        "AutoModel": "modeling_counting.CountingModel",
    }

    visual_feature_size: int = 2048
    hidden_size: int = 64
    largest_count: int = 10
