"""The grid, the released attention and the frozen language model; see `tests/models/test_contracts.py`."""

import shutil

import pytest
import torch
from transformers import AutoModelForImageTextToText

from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from tests.models.architectures import CLOSE, LABELS, WORDS, logits_of
from tests.models.rstnet.tiny import random_grids, tiny_captioner, tiny_config, tiny_language_model

WORDS = WORDS[:3]


def test_the_release_sees_words_that_come_later():
    model, grids = tiny_captioner(release=True), random_grids(3)
    changed = WORDS.clone()
    changed[:, -1] = 3
    with torch.no_grad():
        logits = [model(**grids, decoder_input_ids=words).logits[:, 0] for words in (WORDS, changed)]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


@torch.no_grad()
def test_a_grid_without_boxes_is_the_grid_with_its_boxes():
    model, grids = tiny_captioner(), random_grids(2)
    corners = torch.tensor([[column / 3, row / 3] for row in range(3) for column in range(3)])
    boxes = torch.cat([corners, corners + 1 / 3], dim=-1).expand(2, -1, -1)
    expected = logits_of(model, grids, LABELS[:2])
    torch.testing.assert_close(logits_of(model, {**grids, "visual_boxes": boxes}, LABELS[:2]), expected, **CLOSE)
    turned = {**grids, "visual_boxes": boxes.flip(1)}
    torch.testing.assert_close(logits_of(model, turned, LABELS[:2]), expected, **CLOSE), "only distances count"
    elsewhere = {**grids, "visual_boxes": boxes[:, [0, 4, 2, 3, 1, 5, 6, 7, 8]]}
    assert (logits_of(model, elsewhere, LABELS[:2]) - expected).abs().max() > 1e-3


def test_tokens_that_are_no_grid_are_named():
    model, grids = tiny_captioner(), random_grids(2, 2, 3)
    with pytest.raises(ValueError, match=r"6 visual tokens.* visual_boxes"):
        model(**grids, labels=LABELS[:2])
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 4:] = 0
    with pytest.raises(ValueError, match="visual_boxes"):
        model(**random_grids(2), attention_mask=mask, labels=LABELS[:2])
    with pytest.raises(ValueError, match=r"visual_boxes .*\(2, 4, 4\).*\(2, 9, 4\)"):
        model(**random_grids(2), visual_boxes=torch.zeros(2, 4, 4), labels=LABELS[:2])
    with pytest.raises(ValueError, match=r"6 visual tokens.* 7 x 7"):
        tiny_captioner(release=True, grid_size=[7, 7])(**grids, labels=LABELS[:2])


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


def test_a_trained_language_model_is_taken_over(tmp_path):
    trained = tiny_language_model(seed=8)
    trained.align_vocabulary([str(word) for word in range(24)], lambda word: [int(word), 39])
    trained.save_pretrained(tmp_path / "language_model")
    config = tiny_config(language_model_config=None, pretrained_language_model=str(tmp_path / "language_model"))
    model = RSTNetForConditionalGeneration(config).eval()
    with torch.no_grad():
        signal = model.model.decoder.language_model(WORDS).last_hidden_state
        assert torch.equal(signal, trained(WORDS).last_hidden_state)
        model.save_pretrained(tmp_path / "captioner")
        shutil.rmtree(tmp_path / "language_model")  # the captioner keeps its own
        loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "captioner")
        assert torch.equal(loaded.model.decoder.language_model(WORDS).last_hidden_state, signal)
    assert not any(weight.requires_grad for weight in loaded.model.decoder.language_model.parameters())
