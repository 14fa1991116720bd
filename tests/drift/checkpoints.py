"""The frozen checkpoints: models and inputs by their seeds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_mhsan_text import MHSANTextConfig, MHSANTextModel
from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from hf_ngsan.models.processing_spatial_captioner import SpatialCaptionerProcessor
from tests.models import tiny
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.nsa_transformer import tiny as translation
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial
from tests.models.tiny_photos import pixel_captioner

WORDS = torch.tensor([[1, 5, 6, 7, 9, 4], [1, 8, 5, 11, 12, 3]])
PIXELS = torch.randn(2, 3, 24, 32, generator=torch.Generator().manual_seed(0))
EFFICIENTNET = {"embedding_size": 4, "hidden_sizes": [4, 6, 8], "depths": [1, 2, 1]}
RESNEXT = {"embedding_size": 4, "hidden_sizes": [8, 16], "depths": [1, 1], "groups": 2, "width_per_group": 2}


class Frozen(NamedTuple):
    """A model in evaluation mode, its processor if its type has one, and inputs."""

    model: Any
    processor: Any
    inputs: dict[str, torch.Tensor]


def lively(model: Any) -> Any:
    tiny.make_lively(model, seed=7)
    return model.eval()


CHECKPOINTS: dict[str, Callable[[], Frozen]] = {
    "ngsan": lambda: Frozen(
        tiny.tiny_captioner(), tiny.tiny_processor(), {**tiny.random_images([5, 3]), "decoder_input_ids": WORDS}
    ),
    "spatial_captioner": lambda: Frozen(
        spatial.tiny_captioner(),
        SpatialCaptionerProcessor(tokenizer=tiny.tiny_tokenizer()),
        {**spatial.random_cells([9, 4]), "decoder_input_ids": WORDS},
    ),
    "rstnet": lambda: Frozen(
        rstnet.tiny_captioner(),
        RSTNetProcessor(tokenizer=tiny.tiny_tokenizer()),
        {**rstnet.random_grids(2), "decoder_input_ids": WORDS},
    ),
    "rstnet_language_model": lambda: Frozen(
        rstnet.tiny_language_model(), RSTNetProcessor(tokenizer=tiny.tiny_tokenizer()), {"input_ids": WORDS}
    ),
    "mhsan": lambda: Frozen(
        mhsan.tiny_model(), mhsan.tiny_processor(), {**mhsan.random_features([5, 3]), **mhsan.random_words([6, 4])}
    ),
    "mhsan_text": lambda: Frozen(
        lively(MHSANTextModel(MHSANTextConfig(**mhsan.TEXT))), None, mhsan.random_words([6, 4])
    ),
    "ngsan_vision": lambda: Frozen(lively(pixel_captioner().model.vision), None, {"pixel_values": PIXELS}),
    "ngsan_vgg": lambda: Frozen(
        lively(NGSANVGGBackbone(NGSANVGGConfig(depths=[1, 2], hidden_sizes=[4, 8]))), None, {"pixel_values": PIXELS}
    ),
    "ngsan_resnext": lambda: Frozen(
        lively(NGSANResNeXtBackbone(NGSANResNeXtConfig(**RESNEXT))), None, {"pixel_values": PIXELS}
    ),
    "ngsan_efficientnet_lite": lambda: Frozen(
        lively(NGSANEfficientNetLiteBackbone(NGSANEfficientNetLiteConfig(**EFFICIENTNET))),
        None,
        {"pixel_values": PIXELS},
    ),
    "mcan": lambda: Frozen(mcan.tiny_model(), mcan.tiny_processor(), mcan.random_inputs([6, 4], [5, 3])),
    "nsa_transformer": lambda: Frozen(
        translation.tiny_translator(), None, {**translation.random_sources([6, 4]), "decoder_input_ids": WORDS}
    ),
}
"""One checkpoint of every model type."""


@torch.no_grad()
def outputs_of(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the main output of a model: logits, features or hidden states, flattened."""
    outputs = model(**inputs)
    for name in ("logits", "logits_per_image", "visual_features", "feature_maps", "last_hidden_state"):
        actual = getattr(outputs, name, None)
        if actual is not None:
            return (actual[-1] if isinstance(actual, tuple) else actual).flatten()
    raise AssertionError(f"{type(model).__name__} returns none of its outputs")
