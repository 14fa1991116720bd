"""The grid, the frozen language model, visualness, and the released beam search.

`test_contracts.py` and `test_generation.py` of `tests/models` test properties of every captioner.
"""

import shutil

import pytest
import torch
from transformers import AutoModelForImageTextToText

from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from tests.models.architectures import CLOSE, LABELS, WORDS, logits_of, spoken
from tests.models.rstnet.tiny import random_grids, tiny_captioner, tiny_config, tiny_language_model
from tests.tables import each_row

WORDS = WORDS[:3]
WAYS = [
    {},
    {"do_sample": True, "num_return_sequences": 2},
    {"num_beams": 4, "num_return_sequences": 3},
    {"cache_implementation": "static"},
]


def test_a_grid_without_boxes_is_the_grid_with_its_boxes():
    model, grids = tiny_captioner(), random_grids(2)
    corners = torch.tensor([[column / 3, row / 3] for row in range(3) for column in range(3)])
    boxes = torch.cat([corners, corners + 1 / 3], dim=-1).expand(2, -1, -1)
    expected = logits_of(model, grids, LABELS[:2])
    for same in (boxes, boxes.flip(1)):  # only distances matter
        torch.testing.assert_close(logits_of(model, {**grids, "visual_boxes": same}, LABELS[:2]), expected, **CLOSE)
    elsewhere = {**grids, "visual_boxes": boxes[:, [0, 4, 2, 3, 1, 5, 6, 7, 8]]}
    assert (logits_of(model, elsewhere, LABELS[:2]) - expected).abs().max() > 1e-3


def test_the_language_model_is_frozen_and_never_in_training_mode():
    model = tiny_captioner().train()
    decoder = model.model.decoder
    language_model = decoder.language_model
    decoder.eval().train()
    assert model.training and decoder.training and not any(module.training for module in language_model.modules())
    before = {name: weight.clone() for name, weight in language_model.state_dict().items()}
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    for _ in range(2):
        model(**random_grids(4), labels=LABELS).loss.backward()
        optimizer.step()
    assert all(weight.grad is None for weight in language_model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in language_model.state_dict().items())
    assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)


@torch.no_grad()
def test_a_trained_language_model_is_taken_over(tmp_path):
    trained = tiny_language_model(seed=8)
    trained.align_vocabulary([str(word) for word in range(24)], lambda word: [int(word), 39])
    trained.save_pretrained(tmp_path / "language_model")
    config = tiny_config(language_model_config=None, pretrained_language_model=str(tmp_path / "language_model"))
    model = RSTNetForConditionalGeneration(config).eval()
    signal = model.model.decoder.language_model(WORDS).last_hidden_state
    assert torch.equal(signal, trained(WORDS).last_hidden_state)
    model.save_pretrained(tmp_path / "captioner")
    shutil.rmtree(tmp_path / "language_model")  # the captioner keeps its own
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "captioner")
    assert torch.equal(loaded.model.decoder.language_model(WORDS).last_hidden_state, signal)
    assert not any(weight.requires_grad for weight in loaded.model.decoder.language_model.parameters())


@torch.no_grad()
def step_by_step(model, features: torch.Tensor, words: list[int]) -> tuple[torch.Tensor, list[float]]:
    """Logits after the last word of a caption, and the visualness of each word from its adaptive attention."""
    cache, visualness = None, []
    for word in words:
        inputs = {"visual_features": features[None], "decoder_input_ids": torch.tensor([[word]])}
        outputs = model(**inputs, cache=cache, use_cache=True, output_attentions=True, attn_implementation="eager")
        cache = outputs.cache
        visualness.append(1 - outputs.cross_attentions[-1][0, :, 0, -1].mean().item())
    return outputs.logits[0, -1], visualness


def test_decoding_does_not_wait_for_the_device():
    """On the device `meta` there are no values to wait for."""
    model = tiny_language_model(position_embedding="table", language_attention="bidirectional").to("meta")
    words = torch.ones(2, 1, dtype=torch.long, device="meta")
    mask = torch.ones(2, 7, dtype=torch.long, device="meta")
    assert model.positions(words, mask, torch.float32).shape == (2, 1, 32)
    assert model.encode(words, None, words, None).shape == (2, 1, 16)


@each_row("options", WAYS)
@each_row("release", [False, True])
def test_visualness_belongs_to_the_words_that_are_returned(options, release):
    model, grids = tiny_captioner(release=release), random_grids(2)
    options = {**options, "suppress_tokens": [0, 1]}  # which the release does not learn to omit here
    output = model.generate(**grids, **options, return_visualness=True, return_dict_in_generate=True)
    each = len(output.sequences) // 2
    for row, (words, actual) in enumerate(zip(spoken(output.sequences), output.visualness, strict=True)):
        _, expected = step_by_step(model, grids["visual_features"][row // each], words[:-1])
        assert actual.tolist() == pytest.approx([0, *expected, *[0] * (len(actual) - len(words))], abs=1e-5)
    assert output.visualness[:, 1].std() > 1e-3, "otherwise the test would see little"


def test_beams_compete_as_released():
    """Against a search in loops: a finished caption is one candidate, with its probability, at every step."""
    model, grids = tiny_captioner(release=True, seed=5, output_bias=True), random_grids(3)
    beams = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0}
    output = model.generate(**grids, **beams, max_new_tokens=3, return_dict_in_generate=True, output_scores=True)
    finished_early = 0
    for row in range(3):
        actual = [(0.0, [1])]
        for _ in range(3):
            candidates = [(score, words) for score, words in actual if 2 in words]
            for score, words in actual:
                if 2 not in words:
                    scores = step_by_step(model, grids["visual_features"][row], words)[0].log_softmax(-1).tolist()
                    candidates += [(score + value, [*words, word]) for word, value in enumerate(scores)]
            actual = sorted(candidates, reverse=True)[:4]
        part = slice(row * 4, row * 4 + 4)
        assert spoken(output.sequences[part]) == [words for _, words in actual]
        assert output.sequences_scores[part].tolist() == pytest.approx([score for score, _ in actual], abs=1e-4)
        finished_early += sum(len(words) < 4 for _, words in actual)
    assert finished_early, "otherwise the test would see little"
