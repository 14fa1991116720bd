"""The architectures that generate text, with tiny models, variants and padded inputs, for tests of all of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, PreTrainedModel

from hf_ngsan.models.modeling_ngsan import NGSANModel
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerModel
from hf_ngsan.models.modeling_rstnet import RSTNetModel
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerModel
from tests.models import tiny
from tests.models.ngsan.variants import REPRESENTATIVES
from tests.models.nsa_transformer import tiny as nsa_transformer
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.tables import each_row

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
LABELS = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100], [10, 2, -100, -100], [11, 12, 13, 2]])
WORDS = torch.tensor([[1, 5, 6, 7, 9], [1, 8, 5, 11, 12], [1, 10, 4, 9, 6], [1, 7, 7, 8, 5]])


@dataclass(frozen=True)
class Architecture:
    """Makes a tiny model in evaluation mode, and inputs of four rows of unequal length with their mask."""

    make: Callable[..., PreTrainedModel]
    inputs: Callable[[], dict[str, torch.Tensor]]
    base: type[PreTrainedModel]
    variants: dict[str, dict]
    auto: type = AutoModelForImageTextToText


ARCHITECTURES = {
    "ngsan": Architecture(
        tiny.tiny_captioner, lambda: tiny.random_images([6, 1, 2, 4]), NGSANModel, variants=REPRESENTATIVES
    ),
    "rstnet": Architecture(
        lambda **changes: rstnet.tiny_captioner(**{"seed": 5, **changes}),  # with long captions for these images
        lambda: tiny.random_images([6, 1, 2, 4]),
        RSTNetModel,
        variants={
            "paper": {},
            "base": {"geometry_fusion": None, "adaptive_attention": False, "tie_word_embeddings": True},
            "mixed": {
                **{"geometry_fusion": "log", "geometry_embedding": "sinusoidal", "grid_size_offset": 0},
                **{"language_signal_projection": "separate", "double_residual": True, "input_norm": True},
            },
        },
    ),
    "spatial_captioner": Architecture(
        spatial_captioner.tiny_captioner,
        lambda: spatial_captioner.random_cells([6, 1, 2, 4]),
        SpatialCaptionerModel,
        variants={
            "paper": {},
            "no projection": {"hidden_size": spatial_captioner.FEATURE_SIZE, "num_attention_heads": 2},
            "plain": {"attention_temperature": "head_dim", "attention_bias": True, "tie_word_embeddings": True},
        },
    ),
    "nsa_transformer": Architecture(
        nsa_transformer.tiny_translator,
        lambda: nsa_transformer.random_sources([6, 2, 5, 3]),
        NSATransformerModel,
        variants=nsa_transformer.VARIANTS,
        auto=AutoModelForSeq2SeqLM,
    ),
}
FIRST = {name: next(iter(item.variants)) for name, item in ARCHITECTURES.items()} | {"ngsan": "NG-SAN"}
CAPTIONERS = [name for name in ARCHITECTURES if name != "nsa_transformer"]
VARIANTS = [(name, variant) for name, item in ARCHITECTURES.items() for variant in item.variants]
every_variant = each_row(("name", "variant"), VARIANTS)
every_architecture = each_row(("name", "variant"), FIRST.items())
every_captioner = each_row("name", CAPTIONERS)


def make(name: str, variant: str | None = None, **changes) -> PreTrainedModel:
    item = ARCHITECTURES[name]
    return item.make(**item.variants[variant or FIRST[name]], **changes)


def logits_of(model, inputs: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs, labels=labels).logits


def spoken(sequences: torch.Tensor) -> list[list[int]]:
    """Each text up to its end token, without padding; beam search pads with end tokens where padding is 0."""
    rows = [[token for token in row if token != 0] for row in sequences.tolist()]
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows]
