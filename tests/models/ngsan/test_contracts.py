"""What must not change a result: padding, batch, order of regions, attention implementation, saving, checkpointing."""

import shutil

import pytest
import torch
from transformers import AutoModel, AutoModelForImageTextToText

from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
from tests.models.ngsan.variants import REPRESENTATIVES
from tests.models.tiny import one_image, random_images, tiny_captioner

LENGTHS = [6, 1, 2, 4]
LABELS = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100], [10, 2, -100, -100], [11, 12, 13, 2]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile on a CPU needs a C++ compiler")
every_variant = pytest.mark.parametrize("name", REPRESENTATIVES)


def logits_of(model, images: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    with torch.no_grad():
        return model(**images, labels=labels).logits


@every_variant
def test_padding_and_batch_change_nothing(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    together = logits_of(model, images)
    for row in range(len(LENGTHS)):
        torch.testing.assert_close(
            together[row : row + 1], logits_of(model, one_image(images, row), LABELS[row : row + 1]), **CLOSE
        )


@every_variant
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_what_stands_in_the_padding_changes_nothing(name, implementation):
    model = tiny_captioner(attn_implementation=implementation, **REPRESENTATIVES[name])
    images = random_images(LENGTHS)
    expected = logits_of(model, images)
    padding = images["attention_mask"] == 0
    images["visual_features"][padding] = 1000.0
    images["visual_boxes"][padding] = torch.tensor([0.9, 0.1, 0.2, 5.0])
    torch.testing.assert_close(logits_of(model, images), expected, **CLOSE)


@every_variant
def test_more_padding_on_either_side_changes_nothing(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    expected = logits_of(model, images)
    for order in (slice(None), slice(None, None, -1)):
        wider = {key: torch.cat([tensor, torch.zeros_like(tensor)][order], dim=1) for key, tensor in images.items()}
        torch.testing.assert_close(logits_of(model, wider), expected, **CLOSE)


@every_variant
def test_order_of_regions_changes_nothing(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    order = torch.randperm(max(LENGTHS), generator=torch.Generator().manual_seed(3))
    permuted = {key: tensor[:, order] for key, tensor in images.items()}
    torch.testing.assert_close(logits_of(model, permuted), logits_of(model, images), **CLOSE)


@pytest.mark.parametrize("name", ["NG-SAN", "G-SAN", "signed"])
def test_scaling_and_translating_all_boxes_changes_no_bit_of_the_logits(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    images["visual_boxes"] = (images["visual_boxes"] * 1024).round() / 1024
    expected = logits_of(model, images)
    images["visual_boxes"] = images["visual_boxes"] * 0.25 + 0.5
    assert torch.equal(logits_of(model, images), expected)


def test_only_signed_geometry_sees_that_a_layout_is_mirrored():
    images = random_images(LENGTHS)
    mirrored = {**images, "visual_boxes": (1 - images["visual_boxes"])[..., [2, 1, 0, 3]]}
    mirrored["visual_boxes"][..., [1, 3]] = images["visual_boxes"][..., [1, 3]]
    unsigned, signed = tiny_captioner(), tiny_captioner(geometry_features="signed")
    torch.testing.assert_close(logits_of(unsigned, mirrored), logits_of(unsigned, images), rtol=1e-3, atol=1e-3)
    assert (logits_of(signed, mirrored) - logits_of(signed, images)).abs().max() > 0.1


def test_models_without_geometry_ignore_boxes():
    images = random_images(LENGTHS)
    model = tiny_captioner(**REPRESENTATIVES["N-SAN"])
    without = {key: tensor for key, tensor in images.items() if key != "visual_boxes"}
    assert torch.equal(logits_of(model, without), logits_of(model, images))


@every_variant
def test_eager_equals_sdpa(name):
    images = random_images(LENGTHS)
    images["visual_boxes"][0, 1] = images["visual_boxes"][0, 0]
    images["visual_boxes"][3, 2, 2:] = images["visual_boxes"][3, 2, :2]
    results = []
    for implementation in ("eager", "sdpa"):
        model = tiny_captioner(attn_implementation=implementation, **REPRESENTATIVES[name])
        loss = model(**images, labels=LABELS).loss
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((logits_of(model, images), loss.detach(), gradients))
    torch.testing.assert_close(results[0], results[1], **CLOSE)


@pytest.mark.parametrize("name", ["NG-SAN", "everything"])
def test_eager_equals_sdpa_in_bfloat16(name):
    images = random_images(LENGTHS)
    eager, sdpa = (
        tiny_captioner(attn_implementation=implementation, **REPRESENTATIVES[name]).to(torch.bfloat16)
        for implementation in ("eager", "sdpa")
    )
    torch.testing.assert_close(logits_of(eager, images), logits_of(sdpa, images), rtol=0.05, atol=0.05)
    single = tiny_captioner(**REPRESENTATIVES[name])
    torch.testing.assert_close(logits_of(eager, images).float(), logits_of(single, images), rtol=0.1, atol=0.1)


@every_variant
def test_mixed_precision_trains(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]).train(), random_images(LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**images, labels=LABELS).loss
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["SAN", "NG-SAN", "everything"])
def test_flex_attention_equals_eager(name):
    images = random_images(LENGTHS)
    flex = tiny_captioner(attn_implementation="flex_attention", **REPRESENTATIVES[name])
    eager = tiny_captioner(attn_implementation="eager", **REPRESENTATIVES[name])
    torch.testing.assert_close(logits_of(flex, images), logits_of(eager, images), **CLOSE)


@every_variant
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_gradient(name, reentrant):
    images, gradients = random_images(LENGTHS), []
    for checkpointing in (False, True):
        model = tiny_captioner(**REPRESENTATIVES[name]).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(5)
        model(**images, labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], **CLOSE)


@every_variant
def test_saving_and_loading_changes_no_bit(name, tmp_path):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    for loader in (NGSANForConditionalGeneration, AutoModelForImageTextToText):
        loaded = loader.from_pretrained(tmp_path)
        assert type(loaded) is NGSANForConditionalGeneration
        assert not loaded.training
        assert torch.equal(logits_of(loaded, images), logits_of(model, images))
        assert loaded.generation_config.max_new_tokens == 8
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is NGSANModel
    words = LABELS.clamp(min=0)
    with torch.no_grad():
        expected = model.model(**images, decoder_input_ids=words).last_hidden_state
        assert torch.equal(base(**images, decoder_input_ids=words).last_hidden_state, expected)


def test_loading_in_half_precision_changes_the_weights_only(tmp_path):
    model, images = tiny_captioner(), random_images(LENGTHS)
    model.save_pretrained(tmp_path)
    loaded = NGSANForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(logits_of(loaded, images).float(), logits_of(model, images), rtol=0.1, atol=0.1)


def test_attention_weights_and_hidden_states_are_reported():
    model, images = tiny_captioner(attn_implementation="eager"), random_images(LENGTHS)
    with torch.no_grad():
        outputs = model(**images, labels=LABELS, output_attentions=True, output_hidden_states=True)
    shapes = {
        "encoder_attentions": (4, 4, 6, 6),
        "decoder_attentions": (4, 4, 4, 4),
        "cross_attentions": (4, 4, 4, 6),
        "encoder_hidden_states": (4, 6, 32),
        "decoder_hidden_states": (4, 4, 32),
    }
    for name, shape in shapes.items():
        assert {tuple(tensor.shape) for tensor in outputs[name]} == {shape}
        assert len(outputs[name]) == (2 if "attentions" in name else 3)
    padding = images["attention_mask"][:, None, None] == 0
    for weights in outputs.encoder_attentions + outputs.cross_attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert weights.masked_select(padding).max() == 0
    plain = model(**images, labels=LABELS)
    assert not set(plain) & set(shapes)


def test_vocabulary_grows_without_a_change_to_old_words():
    model, images = tiny_captioner(), random_images(LENGTHS)
    expected = logits_of(model, images)
    model.resize_token_embeddings(expected.shape[-1] + 3)
    assert model.config.vocab_size == expected.shape[-1] + 3
    assert torch.equal(logits_of(model, images)[..., :-3], expected)


def test_wrong_inputs_are_named():
    model, images = tiny_captioner(), random_images(LENGTHS)
    features, boxes = images["visual_features"], images["visual_boxes"]
    with pytest.raises(ValueError, match=r"visual_features has shape \(4, 6, 5\).*visual_feature_size=12"):
        model(features[..., :5], boxes, labels=LABELS)
    with pytest.raises(ValueError, match=r"visual_features has shape \(6, 12\)"):
        model(features[0], boxes[0], labels=LABELS)
    with pytest.raises(ValueError, match=r"visual_boxes are missing.*geometric_bias=\['query'\]"):
        model(features, labels=LABELS)
    with pytest.raises(ValueError, match=r"visual_boxes has shape \(4, 5, 4\).*\(4, 6, 4\)"):
        model(features, boxes[:, :5], labels=LABELS)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(4, 5\).*\(4, 6\)"):
        model(features, boxes, images["attention_mask"][:, :5], labels=LABELS)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["SAN", "NG-SAN", "everything"])
def test_forward_compiles_without_a_graph_break(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    compiled = torch.compile(model, fullgraph=True)
    words = LABELS.clamp(min=0)
    with torch.no_grad():
        expected = model(**images, decoder_input_ids=words, use_cache=False).logits
        computed = compiled(**images, decoder_input_ids=words, use_cache=False).logits
    torch.testing.assert_close(computed, expected, **CLOSE)
