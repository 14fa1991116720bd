"""Tiny spatial captioners and feature maps."""

import torch

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration
from tests.models.tiny import WORDS, make_talkative

FEATURE_SIZE = 12
VISION = {"backbone_config": {"model_type": "ngsan_vgg", "depths": [1, 1], "hidden_sizes": [6, FEATURE_SIZE]}}


def tiny_config(**changes) -> SpatialCaptionerConfig:
    sizes = {
        **{"vocab_size": len(WORDS) + 4, "vision_config": None, "visual_feature_size": FEATURE_SIZE, "hidden_size": 32},
        **{"encoder_layers": 2, "decoder_layers": 3, "num_attention_heads": 4, "intermediate_size": 48},
    }
    return SpatialCaptionerConfig(**{**sizes, **changes})


def tiny_captioner(seed: int = 26, **changes) -> SpatialCaptionerForConditionalGeneration:
    """A captioner in evaluation mode that depends on its inputs; `changes` are those of `tiny_config`."""
    model = SpatialCaptionerForConditionalGeneration(tiny_config(**changes)).eval()
    make_talkative(model, seed)
    return model


def random_cells(numbers: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded features and mask of images with these numbers of grid cells."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.zeros(len(numbers), max(numbers), FEATURE_SIZE)
    mask = torch.zeros(len(numbers), max(numbers), dtype=torch.long)
    for row, number in enumerate(numbers):
        features[row, :number] = torch.randn(number, FEATURE_SIZE, generator=generator)
        mask[row, :number] = 1
    return {"visual_features": features, "attention_mask": mask}
