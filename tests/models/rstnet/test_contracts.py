"""What must not change a result, what no word may see, and how the language model stays as it is."""

import shutil

import pytest
import torch
from transformers import AutoModel, AutoModelForImageTextToText

from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration, RSTNetModel
from tests.models.rstnet.tiny import random_grids, tiny_captioner, tiny_config, tiny_language_model
from tests.models.tiny import one_image, random_images

LABELS = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100], [10, 2, -100, -100], [11, 12, 13, 2]])
WORDS = torch.tensor([[1, 5, 6, 7, 9], [1, 8, 5, 11, 12], [1, 10, 4, 9, 6]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
VARIANTS = {
    "paper": {},
    "base": {"geometry_fusion": None, "adaptive_attention": False, "tie_word_embeddings": True},
    "mixed": {
        "geometry_fusion": "log",
        "geometry_embedding": "sinusoidal",
        "grid_size_offset": 0,
        "language_signal_projection": "separate",
        "double_residual": True,
        "input_norm": True,
    },
}
every_variant = pytest.mark.parametrize("name", VARIANTS)


@pytest.fixture
def regions():
    return random_images([6, 1, 2, 4])


def logits_of(model, visual: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    with torch.no_grad():
        return model(**visual, labels=labels).logits


@every_variant
def test_padding_and_batch_change_nothing(name, regions):
    model = tiny_captioner(**VARIANTS[name])
    together = logits_of(model, regions)
    for row in range(4):
        alone = logits_of(model, one_image(regions, row), LABELS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)


@every_variant
def test_eager_equals_sdpa(name, regions):
    results = []
    for implementation in ("eager", "sdpa"):
        model = tiny_captioner(attn_implementation=implementation, **VARIANTS[name]).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        loss = model(**regions, labels=LABELS).loss
        loss.backward()
        gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.requires_grad]
        results.append((logits_of(model.eval(), regions), loss.detach(), torch.cat(gradients)))
    torch.testing.assert_close(results[0], results[1], **CLOSE)


@every_variant
def test_no_word_sees_those_after_it(name):
    model, grids = tiny_captioner(**VARIANTS[name]), random_grids(3)
    with torch.no_grad():
        expected = model(**grids, decoder_input_ids=WORDS).logits
        for position in range(1, 5):
            changed = WORDS.clone()
            changed[:, position] = 3
            logits = model(**grids, decoder_input_ids=changed).logits
            torch.testing.assert_close(logits[:, :position], expected[:, :position], **CLOSE)
            assert (logits[:, position:] - expected[:, position:]).abs().max() > 1e-2


def test_the_release_sees_words_that_come_later():
    model, grids = tiny_captioner(release=True), random_grids(3)
    changed = WORDS.clone()
    changed[:, -1] = 3
    with torch.no_grad():
        logits = [model(**grids, decoder_input_ids=words).logits[:, 0] for words in (WORDS, changed)]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


@torch.no_grad()
def test_several_captions_of_an_image_share_its_encoding():
    model, grids = tiny_captioner(), random_grids(3)
    captions = torch.cat([WORDS, WORDS.flip(0)])[[0, 3, 1, 4, 2, 5]]
    twice = {name: tensor.repeat_interleave(2, dim=0) for name, tensor in grids.items()}
    expected = model(**twice, decoder_input_ids=captions).logits
    torch.testing.assert_close(model(**grids, decoder_input_ids=captions).logits, expected, **CLOSE)


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
    with pytest.raises(ValueError, match="visual_boxes are missing"):
        model(**random_grids(2), attention_mask=mask, labels=LABELS[:2])
    with pytest.raises(ValueError, match=r"visual_boxes has shape \(2, 4, 4\).* \(2, 9, 4\)"):
        model(**random_grids(2), visual_boxes=torch.zeros(2, 4, 4), labels=LABELS[:2])
    with pytest.raises(ValueError, match=r"6 visual tokens.* 7 x 7"):
        tiny_captioner(release=True, grid_size=[7, 7])(**grids, labels=LABELS[:2])


def test_the_language_model_is_frozen_and_never_in_training_mode():
    model = tiny_captioner().train()
    language_model = model.model.decoder.language_model
    assert model.training and not any(module.training for module in language_model.modules())
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


@every_variant
def test_saving_and_loading_changes_no_bit(name, tmp_path):
    model, grids = tiny_captioner(**VARIANTS[name]), random_grids(4)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert torch.equal(logits_of(loaded, grids), logits_of(model, grids))
    assert type(AutoModel.from_pretrained(tmp_path)) is RSTNetModel


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_gradient(reentrant, regions):
    gradients = []
    for checkpointing in (False, True):
        model = tiny_captioner().train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(5)
        model(**regions, labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.requires_grad])
    assert all(gradient is not None for gradient in gradients[1])
    torch.testing.assert_close(gradients[0], gradients[1], **CLOSE)


def test_half_precision_is_close_and_trains(regions):
    model = tiny_captioner()
    expected = logits_of(model, regions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.train()(**regions, labels=LABELS).loss
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.requires_grad)
    half = logits_of(model.eval().to(torch.bfloat16), regions)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.15, atol=0.15)


@pytest.mark.slow
def test_forward_is_one_graph():
    model, grids = tiny_captioner(), random_grids(4)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    given = {**grids, "decoder_input_ids": LABELS.clamp(min=0), "use_cache": False}
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given).logits, model(**given).logits, **CLOSE)


def test_the_language_model_takes_words():
    with pytest.raises(ValueError, match="decoder_input_ids"):
        tiny_captioner()(**random_grids(1), decoder_inputs_embeds=torch.zeros(1, 2, 32))


def test_attention_maps_of_words_are_over_the_grid(request):
    from tests.models.tiny import tiny_tokenizer

    model, grids = tiny_captioner(), random_grids(2)
    for words, weights in model.word_attention(tiny_tokenizer(), grids, WORDS[:2]):
        assert weights.shape == (len(words), 9)
        assert weights.sum(-1) == pytest.approx(1, abs=1e-5)
