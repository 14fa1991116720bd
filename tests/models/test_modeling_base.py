"""Arguments that no part of a model reads are refused by name; those of transformers go through."""

import pytest
import torch

from hf_ngsan import EnsembleForConditionalGeneration
from tests.drift.checkpoints import CHECKPOINTS, WORDS
from tests.models import tiny
from tests.tables import each_row

WRITERS = ("ngsan", "spatial_captioner", "rstnet", "nsa_transformer", "ensemble")


def model_and_inputs(name: str):
    if name == "ensemble":
        model = EnsembleForConditionalGeneration([tiny.tiny_captioner(), tiny.tiny_captioner()]).eval()
        return model, {**tiny.random_images([5, 3]), "decoder_input_ids": WORDS}
    model, _, inputs = CHECKPOINTS[name]()
    return model, inputs


@each_row("name", [*CHECKPOINTS, "ensemble"])
@each_row("argument", ["attention_masks", "kv_cache", "kwargs"])
def test_forward_refuses_an_unknown_argument(name, argument):
    model, inputs = model_and_inputs(name)
    with pytest.raises(TypeError, match=argument):
        model(**inputs, **{argument: torch.ones(2, 3)})


@each_row("name", WRITERS)
@each_row("argument", ["attention_masks", "kv_cache", "num_beamz", "kwargs"])
def test_generate_refuses_an_unknown_argument(name, argument):
    model, inputs = model_and_inputs(name)
    del inputs["decoder_input_ids"]
    with pytest.raises((TypeError, ValueError), match=argument):  # of the model, or of transformers
        model.generate(**inputs, max_new_tokens=3, **{argument: 2})
