"""Scores of generated texts: the log-probabilities that the model assigns to their words, one after another."""

from functools import cache

import pytest
import torch

from hf_ngsan.models.text_scores import text_scores, token_log_probabilities, words_of_tokens
from tests.models.rstnet import tiny as rstnet
from tests.models.tiny import tiny_tokenizer
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

SEARCHES = [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "num_beams": 1}]
CASES = [*((False, search) for search in SEARCHES), (True, {"num_beams": 4})]
COMPETING = {"release": True, "language_attention": "causal", "output_bias": True}  # finished beams become padding


@cache
def captioner_and_inputs(competing: bool):
    if competing:
        return rstnet.tiny_captioner(seed=5, **COMPETING), rstnet.random_grids(3)
    return pixel_captioner(), pixel_processor()(images=PHOTOS[:3])


def slow_log_probabilities(model, inputs, sequences) -> list[list[float]]:
    """Runs the model on each prefix of each sequence, without a cache."""
    each, actual = len(sequences) // 3, []
    for row, sequence in enumerate(sequences):
        image = {name: value[row // each, None] for name, value in inputs.items()}
        values = []
        for end in range(1, len(sequence)):
            logits = model(**image, decoder_input_ids=sequence[None, :end], use_cache=False).logits[0, -1]
            values.append(float(logits.double().log_softmax(-1)[sequence[end]]))
            if sequence[end] == model.config.eos_token_id:
                break
        actual.append(values)
    return actual


@each_row("competing, search", CASES)
def test_scores_are_those_of_a_slow_loop(competing, search):
    model, inputs = captioner_and_inputs(competing)
    torch.manual_seed(0)
    with torch.no_grad():
        sequences = model.generate(**inputs, max_new_tokens=6, **search)
        expected = slow_log_probabilities(model, inputs, sequences)
    actual = token_log_probabilities(model, inputs, sequences)
    scores = text_scores(model, tiny_tokenizer(), inputs, sequences)
    for values, result, slow, sequence in zip(actual.tolist(), scores, expected, sequences, strict=True):
        assert values[: len(slow)] == pytest.approx(slow, abs=1e-5)
        assert not any(values[len(slow) :])
        assert result.score == pytest.approx(sum(slow) / len(slow), abs=1e-5)
        text = tiny_tokenizer().decode(sequence, skip_special_tokens=True)
        assert [word for word, _ in result.words] == text.split()


class Subwords:
    """A tokenizer that splits each word into two pieces."""

    all_special_ids = (0,)
    pieces = ("<end>", "ca", "t", " do", "g", " a")

    def decode(self, ids, skip_special_tokens):
        return "".join(self.pieces[item] for item in ids if not (skip_special_tokens and item == 0))


def test_subwords_are_joined():
    actual = words_of_tokens(Subwords(), [], [1, 2, 3, 4, 0], [-1.0, -2.0, -4.0, -8.0, -16.0])
    assert actual == [("cat", -3.0), ("dog", -12.0)]
    assert words_of_tokens(Subwords(), [5, 3], [4, 0], [-1.0, -2.0]) == [("dog", -1.0)]
