"""Decoding: the language signal once a token, visualness, beams as released; see `tests/models/test_generation.py`."""

import pytest
import torch

from tests.models.rstnet.tiny import random_grids, tiny_captioner
from tests.tables import each_row

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
WORDS = torch.tensor([[1, 5, 6, 7, 9], [1, 8, 5, 11, 12], [1, 10, 4, 9, 6]])
WAYS = {
    "greedy": {},
    "sampling": {"do_sample": True, "num_return_sequences": 2},
    "beams": {"num_beams": 3},
    "several of a beam search": {"num_beams": 4, "num_return_sequences": 3},
    "static cache": {"cache_implementation": "static"},
}


@each_row("options", WAYS.values())
def test_the_language_signal_is_computed_once_a_token(options):
    model, grids = tiny_captioner(), random_grids(2)
    lengths = []
    encoder = model.model.decoder.language_model.text_encoder
    hook = encoder.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(kwargs["inputs_embeds"].shape[1]), with_kwargs=True
    )
    sequences = model.generate(**grids, **options, min_new_tokens=6, max_new_tokens=6)
    hook.remove()
    assert sequences.shape[1] == 7
    assert lengths == [1] * 6


@each_row("options", WAYS.values())
def test_the_released_language_signal_is_computed_once_for_each_distinct_word(options):
    model, grids = tiny_captioner(release=True), random_grids(2)
    given, words = [], []
    language_model = model.model.decoder.language_model
    hooks = [
        language_model.register_forward_pre_hook(lambda module, args: words.append(args[0])),
        language_model.text_encoder.register_forward_pre_hook(
            lambda module, args, kwargs: given.append(kwargs["input_ids"]), with_kwargs=True
        ),
    ]
    model.generate(**grids, **options, max_new_tokens=6)
    for hook in hooks:
        hook.remove()
    assert [step.shape[1] for step in given] == [1] * len(words)
    assert [step.flatten().tolist() for step in given] == [sorted(set(step.flatten().tolist())) for step in words]


def visualness_by_steps(model, features: torch.Tensor, words: list[int]) -> list[float]:
    """Of one caption, token by token, from the weights of adaptive attention."""
    cache, values = None, []
    for word in words:
        outputs = model(
            visual_features=features[None],
            decoder_input_ids=torch.tensor([[word]]),
            cache=cache,
            use_cache=True,
            output_attentions=True,
        )
        cache = outputs.cache
        weights = outputs.cross_attentions[-1][0, :, 0]
        assert weights.shape == (4, features.shape[0] + 1)
        torch.testing.assert_close(weights.sum(-1), torch.ones(4))
        values.append(1 - weights[:, -1].mean().item())
    return values


@pytest.mark.parametrize("release", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["paper", "release"])
@pytest.mark.parametrize("options", WAYS.values())
def test_visualness_belongs_to_the_words_that_are_returned(options, release):
    model, grids = tiny_captioner(release=release, attn_implementation="eager"), random_grids(3)
    options = {**options, "suppress_tokens": [0, 1]}  # which the release does not learn to leave out here
    output = model.generate(**grids, **options, return_visualness=True, return_dict_in_generate=True)
    assert output.visualness.shape == output.sequences.shape
    each = len(output.sequences) // 3
    for row, (sequence, found) in enumerate(zip(output.sequences.tolist(), output.visualness.tolist(), strict=True)):
        words = sequence[1:]
        words = words[: words.index(2) + 1] if 2 in words else words
        with torch.no_grad():
            expected = visualness_by_steps(model, grids["visual_features"][row // each], [1, *words[:-1]])
        assert found[1 : len(words) + 1] == pytest.approx(expected, abs=1e-5)
        assert found[0] == 0 and not any(found[len(words) + 1 :])
    assert output.visualness[:, 1].std() > 1e-3, "otherwise the test would see little"


def test_visualness_that_cannot_be_is_refused():
    model, grids = tiny_captioner(), random_grids(1)
    with pytest.raises(ValueError, match="return_dict_in_generate"):
        model.generate(**grids, return_visualness=True)
    plain = tiny_captioner(adaptive_attention=False)
    with pytest.raises(ValueError, match="adaptive_attention"):
        plain.generate(**grids, return_visualness=True, return_dict_in_generate=True)


@torch.no_grad()
@pytest.mark.parametrize("length", [3, pytest.param(7, marks=pytest.mark.slow)])
def test_beams_compete_as_released(length):
    """Against a search in loops: a finished caption is one candidate, of its own probability, at every step."""
    model, grids = tiny_captioner(release=True, seed=5, output_bias=True), random_grids(3)
    beams = 4
    output = model.generate(
        **grids, num_beams=beams, num_return_sequences=beams, max_new_tokens=length, length_penalty=0.0,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    finished_early = 0
    for row in range(3):
        found = [(0.0, [1])]
        for _ in range(length):
            candidates = []
            for score, words in found:
                if 2 in words:
                    candidates.append((score, words))
                    continue
                scores = next_word(model, grids["visual_features"][row], words)
                candidates += [(score + own, [*words, word]) for word, own in enumerate(scores)]
            found = sorted(candidates, reverse=True)[:beams]
        own = slice(row * beams, (row + 1) * beams)
        sequences = [[word for word in words if word != 0] for words in output.sequences[own].tolist()]
        assert sequences == [words for _, words in found]
        assert output.sequences_scores[own].tolist() == pytest.approx([score for score, _ in found], abs=1e-4)
        finished_early += sum(len(words) < 1 + length for _, words in found)
    assert finished_early, "otherwise the test would see little"


def next_word(model, features: torch.Tensor, words: list[int]) -> list[float]:
    cache = None
    for word in words:
        outputs = model(
            visual_features=features[None],
            decoder_input_ids=torch.tensor([[word]]),
            cache=cache,
            use_cache=True,
        )
        cache = outputs.cache
    return outputs.logits[0, -1].log_softmax(-1).tolist()
