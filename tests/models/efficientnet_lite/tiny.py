"""A tiny EfficientNet-Lite."""

from typing import Any

from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteConfig

FIELDS = {"depths": [1, 2, 1], "hidden_sizes": [4, 6, 8], "embedding_size": 4}


def classifier_config(**fields: Any) -> NGSANEfficientNetLiteConfig:
    return NGSANEfficientNetLiteConfig(**{**FIELDS, "head_size": 12, **fields})
