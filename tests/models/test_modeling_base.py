"""Arguments that no part of a model reads, and words without the states of earlier words, are errors."""

import functools

import pytest
import torch

from hf_ngsan import EnsembleForConditionalGeneration
from hf_ngsan.models.decoding import constrained_beam_search, diverse_beam_search
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


SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True},
    "static": {"cache_implementation": "static"},
    "diverse": {"custom_generate": diverse_beam_search, "num_beams": 4, "num_beam_groups": 2},
    "constrained": {"custom_generate": constrained_beam_search, "num_beams": 3, "required_words": [[5]]},
}


def hide_cache(module, monkeypatch) -> None:
    """Ignores the cache, as the open arguments of a `forward` do if it has another name."""
    forward = module.forward

    @functools.wraps(forward)
    def without(*args, cache=None, **kwargs):
        return forward(*args, **kwargs)

    monkeypatch.setattr(module, "forward", without)


@each_row("name", WRITERS)
@each_row("search", SEARCHES)
def test_generate_without_the_cache(name, search, monkeypatch):
    """The second word already raises the error."""
    if name == "ensemble" and search == "static":
        pytest.skip("an ensemble has no such search")
    model, inputs = model_and_inputs(name)
    del inputs["decoder_input_ids"]
    hide_cache(model, monkeypatch)
    with pytest.raises(ValueError, match="words"):
        model.generate(**inputs, min_new_tokens=2, max_new_tokens=2, **SEARCHES[search])


@each_row("name", [*WRITERS, "rstnet_language_model"])
@each_row("told_by", ["mask", "positions"])
def test_a_later_word_alone(name, told_by):
    model, inputs = model_and_inputs(name)
    prefix = "" if name == "rstnet_language_model" else "decoder_"
    inputs[f"{prefix}input_ids"] = WORDS[:, 3:4]
    if told_by == "mask":
        inputs[f"{prefix}attention_mask"] = torch.ones(2, 4, dtype=torch.long)
    else:
        inputs[f"{prefix}position_ids"] = torch.full((2, 1), 3)
    with pytest.raises(ValueError, match="words"):
        model(**inputs)
