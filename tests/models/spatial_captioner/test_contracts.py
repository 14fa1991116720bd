"""What must not change a result: batch, attention implementation, checkpointing, saving; and what must: positions."""

import shutil

import pytest
import torch

from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration
from tests.models.ngsan.test_generation import words
from tests.models.spatial_captioner.tiny import FEATURE_SIZE, random_cells, tiny_captioner, tiny_config
from tests.models.tiny import one_image, random_boxes

CELLS = [6, 1, 2, 4]
LABELS = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100], [10, 2, -100, -100], [11, 12, 13, 2]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
VARIANTS = {
    "paper": {},
    "no projection": {"hidden_size": FEATURE_SIZE, "num_attention_heads": 2},
    "plain": {"attention_temperature": "head_dim", "attention_bias": True, "tie_word_embeddings": True},
}
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="flex attention on a CPU needs a C++ compiler")
every_variant = pytest.mark.parametrize("name", VARIANTS)


@pytest.fixture
def cells():
    return random_cells(CELLS)


def logits_of(model, cells: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    with torch.no_grad():
        return model(**cells, labels=labels).logits


@every_variant
def test_padding_and_batch_change_nothing(name, cells):
    model = tiny_captioner(**VARIANTS[name])
    together = logits_of(model, cells)
    for row in range(len(CELLS)):
        alone = logits_of(model, one_image(cells, row), LABELS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)


@every_variant
@pytest.mark.parametrize("num_beams", [1, 3])
def test_captions_of_a_batch_are_those_of_single_images(name, num_beams, cells):
    model = tiny_captioner(**VARIANTS[name])
    together = words(model.generate(**cells, num_beams=num_beams))
    alone = [words(model.generate(**one_image(cells, row), num_beams=num_beams))[0] for row in range(len(CELLS))]
    assert together == alone
    assert len({tuple(caption) for caption in together}) > 1, "otherwise the test would see little"


@every_variant
def test_eager_equals_sdpa(name, cells):
    results = []
    for implementation in ("eager", "sdpa"):
        model = tiny_captioner(attn_implementation=implementation, **VARIANTS[name])
        loss = model(**cells, labels=LABELS).loss
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((logits_of(model, cells), loss.detach(), gradients))
    torch.testing.assert_close(results[0], results[1], **CLOSE)


@needs_compiler
@pytest.mark.slow
@every_variant
def test_flex_attention_equals_eager(name, cells):
    flex, eager = (
        tiny_captioner(attn_implementation=implementation, **VARIANTS[name])
        for implementation in ("flex_attention", "eager")
    )
    torch.testing.assert_close(logits_of(flex, cells), logits_of(eager, cells), **CLOSE)


@every_variant
def test_half_precision_is_close_and_trains(name, cells):
    model = tiny_captioner(**VARIANTS[name])
    expected = logits_of(model, cells)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.train()(**cells, labels=LABELS).loss
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    half = logits_of(model.eval().to(torch.bfloat16), cells)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.1)


@every_variant
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_gradient(name, reentrant, cells):
    gradients = []
    for checkpointing in (False, True):
        model = tiny_captioner(**VARIANTS[name]).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(5)
        model(**cells, labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(gradient is not None for gradient in gradients[1])
    torch.testing.assert_close(gradients[0], gradients[1], **CLOSE)


@every_variant
def test_saving_and_loading_changes_no_bit(name, cells, tmp_path):
    model = tiny_captioner(**VARIANTS[name])
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    loaded = SpatialCaptionerForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(logits_of(loaded, cells), logits_of(model, cells))
    assert loaded.generation_config.max_new_tokens == 15


def test_forward_is_one_graph(cells):
    model = tiny_captioner()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    given = {**cells, "decoder_input_ids": LABELS.clamp(min=0), "use_cache": False}
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given).logits, model(**given).logits, **CLOSE)


def test_a_new_model_learns_captions_by_heart(cells):
    model = SpatialCaptionerForConditionalGeneration(tiny_config()).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(100):
        optimizer.zero_grad()
        model(**cells, labels=LABELS).loss.backward()
        optimizer.step()
    captions = words(model.eval().generate(**cells))
    assert [caption[1:] for caption in captions] == [[word for word in row if word != -100] for row in LABELS.tolist()]


def test_the_order_of_cells_tells_where_they_are(cells):
    model = tiny_captioner()
    turned = {name: tensor[:1].flip(1) for name, tensor in cells.items()}
    first = {name: tensor[:1] for name, tensor in cells.items()}
    assert (logits_of(model, turned, LABELS[:1]) - logits_of(model, first, LABELS[:1])).abs().max() > 0.1


def test_boxes_are_not_looked_at(cells):
    model = tiny_captioner()
    boxes = random_boxes(len(CELLS), max(CELLS))
    assert torch.equal(logits_of(model, {**cells, "visual_boxes": boxes}), logits_of(model, cells))


def test_captions_have_14_words_and_their_end_at_most(cells):
    model = tiny_captioner()
    with torch.no_grad():
        model.lm_head.bias[2] = -100.0
    assert model.generate(**cells).shape == (4, 1 + 15)
    assert model.generate(**cells, max_new_tokens=3).shape == (4, 1 + 3)
    assert model.generate(**cells, max_length=3).shape == (4, 3)


def test_attention_of_every_generated_word_covers_the_cells(cells):
    model = tiny_captioner(attn_implementation="eager")
    output = model.generate(**cells, output_attentions=True, return_dict_in_generate=True)
    with torch.no_grad():
        forward = model(**cells, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    real = (output.sequences[:, :-1] != 0)[:, None, :, None]
    for layer in range(3):
        generated = torch.cat([step[layer] for step in output.cross_attentions], dim=2)
        assert generated.shape == (4, 4, output.sequences.shape[1] - 1, max(CELLS))
        torch.testing.assert_close(
            generated.where(real, 0.0), forward.cross_attentions[layer].where(real, 0.0), **CLOSE
        )


def test_wrong_inputs_are_named(cells):
    model, features = tiny_captioner(), cells["visual_features"]
    with pytest.raises(ValueError, match=r"visual_features has shape \(4, 6, 5\).*visual_feature_size=12"):
        model(features[..., :5], labels=LABELS)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(4, 5\).*\(4, 6\)"):
        model(features, attention_mask=cells["attention_mask"][:, :5], labels=LABELS)
    with pytest.raises(ValueError, match="visual_features"):
        model(labels=LABELS)
