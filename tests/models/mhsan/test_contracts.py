"""The dual encoder: its equations, its contracts, and the ways of loading it."""

import math

import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.loading.models import load_model
from hf_ngsan.models.configuration_vision import VisionConfig
from hf_ngsan.models.contrastive_losses import diversity_penalty, pair_losses
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.modeling_vision import VisionModel
from hf_ngsan.models.text_encoders import make_text_encoder
from tests.models.mhsan.tiny import BERT, VISION, random_features, random_words, tiny_config, tiny_model, tiny_processor
from tests.tables import each_row

VARIANTS = {
    "both sides": {},
    "image side only": {"num_text_heads": 0},
    "text side only": {"num_image_heads": 0},
    "no attention": {"num_image_heads": 0, "num_text_heads": 0},
    "bidirectional": {"num_text_heads": 0, "text": {"bidirectional": True}},
    "bert": {"text_config": BERT},
    "bert without heads": {"text_config": BERT, "num_text_heads": 0},
}


def attended_by_loops(states, mask, pooling, activation):
    """Eq. 1 and 2, one head and one position at a time."""
    heads = []
    for head in range(len(pooling.scores.weight)):
        scores = [
            float(pooling.scores.weight[head] @ activation(pooling.hidden.weight @ state)) if real else -math.inf
            for state, real in zip(states, mask, strict=True)
        ]
        total = sum(math.exp(score) for score in scores)
        heads.append(sum(math.exp(score) / total * state for score, state in zip(scores, states, strict=True)))
    return torch.cat(heads)


@torch.no_grad()
def test_embeddings_are_the_equations():
    model = tiny_model()
    images, words = random_features([5, 3]), random_words([4, 2])
    features, texts = model.get_image_features(**images), model.get_text_features(**words)
    for row in range(2):
        states = images["visual_features"][row] @ model.image_states.weight.T + model.image_states.bias
        mask = images["visual_attention_mask"][row]
        heads = attended_by_loops(states, mask, model.image_pooling, torch.relu)
        expected = model.image_projection(heads)
        torch.testing.assert_close(features.pooler_output[row], expected / expected.norm(), atol=1e-5, rtol=1e-4)
        states, mask = texts.last_hidden_state[row], words["attention_mask"][row]
        expected = model.text_projection(attended_by_loops(states, mask, model.text_pooling, torch.tanh))
        torch.testing.assert_close(texts.pooler_output[row], expected / expected.norm(), atol=1e-5, rtol=1e-4)
    assert features.attentions[-1].shape == (2, 3, 5) and texts.attentions[-1].shape == (2, 2, 4)
    for attention, mask in (
        (features.attentions[-1], images["visual_attention_mask"]),
        (texts.attentions[-1], words["attention_mask"]),
    ):
        torch.testing.assert_close(attention.sum(-1), torch.ones(attention.shape[:2]))
        assert attention.transpose(1, 2)[mask == 0].abs().max() == 0
    half = model.bfloat16().get_image_features(**images)  # the softmax is computed in float32
    assert (half.pooler_output.dtype, half.attentions[-1].dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(half.attentions[-1].sum(-1), torch.ones(2, 3))


@torch.no_grad()
def test_without_attention_images_are_pooled_selectively_and_texts_end_with_their_last_word():
    model = tiny_model(num_image_heads=0, num_text_heads=0, selective_pooling_size=2)
    images, words = random_features([5, 1]), random_words([4, 2])
    features, texts = model.get_image_features(**images), model.get_text_features(**words)
    assert features.attentions is None and texts.attentions is None
    for row, (num_cells, num_words) in enumerate([(5, 4), (1, 2)]):
        cells = features.last_hidden_state[row, :num_cells].sort(0).values
        pooled = (cells[-2:].mean(0) + cells[:2].mean(0)) / 2
        for states, projection, ours in (
            (pooled, model.image_projection, features),
            (texts.last_hidden_state[row, num_words - 1], model.text_projection, texts),
        ):
            expected = torch.nn.functional.normalize(projection(states), dim=-1)
            torch.testing.assert_close(ours.pooler_output[row], expected, atol=1e-5, rtol=1e-4)


@each_row("changes", VARIANTS.values())
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(changes):
    model = tiny_model(**changes)
    images, words = random_features([5, 2, 1]), random_words([4, 1, 6])
    together = model(**images, **words)
    for row in range(3):
        cells, length = images["visual_attention_mask"][row].sum(), words["attention_mask"][row].sum()
        alone = model(
            visual_features=images["visual_features"][row : row + 1, :cells],
            input_ids=words["input_ids"][row : row + 1, :length],
        )
        torch.testing.assert_close(alone.image_embeds[0], together.image_embeds[row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alone.text_embeds[0], together.text_embeds[row], atol=1e-5, rtol=1e-5)
    for embeds in (together.text_embeds, together.image_embeds):
        assert torch.cdist(embeds, embeds).topk(2, largest=False).values[:, 1].min() > 0.01


def test_logits_and_loss():
    settings = {"margin": 0.3, "temperature": 0.2, "hardest_negatives": 2, "diversity_weight": 0.05}
    images, words = random_features([5, 2, 4]), random_words([4, 1, 6, 2, 3, 3])
    for reduction, squared in (("mean", True), ("sum", False)):
        model = tiny_model(loss_reduction=reduction, squared_diversity=squared, **settings)
        output = model(**images, **words, return_loss=True)
        similarities = output.image_embeds @ output.text_embeds.T
        torch.testing.assert_close(output.logits_per_image, similarities / 0.2)
        assert torch.equal(output.logits_per_text, output.logits_per_image.T)
        is_own = torch.arange(3)[:, None] == torch.arange(6) // 2
        losses = pair_losses(similarities, is_own, margin=0.3, hardest_negatives=2)
        expected = losses.sum() if reduction == "sum" else losses.mean()
        for side in (output.vision_model_output, output.text_model_output):
            expected = expected + 0.05 * diversity_penalty(side.attentions[-1], squared).mean()
        torch.testing.assert_close(output.loss, expected)
        assert output.loss > 0.05
    assert model(**images, **words).loss is None
    with pytest.raises(ValueError, match="3 images, not 4"):
        model(**images, **random_words([1, 2, 3, 4]), return_loss=True)


def test_a_trained_text_encoder_is_loaded_and_kept(tmp_path):
    config = tiny_config(text_config=BERT).text_config
    encoder = make_text_encoder(config)
    assert encoder.pooler is None
    encoder.save_pretrained(tmp_path / "encoder")
    model = MHSANModel(tiny_config(text_config=None, text_pretrained=str(tmp_path / "encoder")))
    for name, weight in encoder.state_dict().items():
        assert torch.equal(model.text.state_dict()[name], weight)
    with torch.no_grad():
        model.text.embeddings.word_embeddings.weight += 1
    model.save_pretrained(tmp_path / "model")
    loaded = MHSANModel.from_pretrained(tmp_path / "model")
    assert all(torch.equal(weight, loaded.state_dict()[name]) for name, weight in model.state_dict().items())
    with pytest.raises(ValueError, match=r"encoder\.layer\.2"):
        MHSANModel(tiny_config(text_config={**BERT, "num_hidden_layers": 3}, text_pretrained=str(tmp_path / "encoder")))


def assert_same_weights(model, other):
    assert model.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(weight, other.state_dict()[name]) for name, weight in model.state_dict().items())


def partly_frozen(folder) -> MHSANModel:
    """A model whose frozen weights, in both encoders, come from folders."""
    torch.manual_seed(0)
    make_text_encoder(tiny_config(text_config=BERT).text_config).save_pretrained(folder / "encoder")
    VisionModel(VisionConfig(**VISION)).backbone.save_pretrained(folder / "backbone")
    vision = {**VISION, "pretrained": str(folder / "backbone"), "save_frozen_weights": False}
    text = {"text_config": None, "text_pretrained": str(folder / "encoder"), "frozen_text_layers": 1}
    return MHSANModel(tiny_config(**text, vision_config=vision, save_frozen_weights=False))


def test_frozen_layers_of_the_text_encoder_are_neither_trained_nor_saved(tmp_path):
    model = partly_frozen(tmp_path).train()
    frozen = set(model.frozen_text_weights())
    assert {name for name, weight in model.text.named_parameters() if not weight.requires_grad} == frozen
    assert frozen == {name for name, _ in model.text.named_parameters() if not name.startswith("encoder.layer.1.")}
    assert not model.text.embeddings.training and not model.text.encoder.layer[0].training
    assert model.text.encoder.layer[1].training
    with torch.no_grad():
        model.text.encoder.layer[1].output.dense.bias.add_(1.0)

    model.eval().save_pretrained(tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert {name for name in saved if name.startswith("text.")} == {
        f"text.{name}" for name, _ in model.text.named_parameters() if name not in frozen
    }
    again, report = MHSANModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert_same_weights(again, model)
    assert not again.text.embeddings.word_embeddings.weight.requires_grad
    assert not [name for name in saved if ".backbone." in name]
    tiny_processor(pixels=True).save_pretrained(tmp_path / "model")
    loaded, _ = load_model(tmp_path / "model", "retrieval")
    assert_same_weights(loaded, model)

    (tmp_path / "encoder").rename(tmp_path / "moved")
    with pytest.raises(OSError, match="encoder"):
        MHSANModel.from_pretrained(tmp_path / "model")


@torch.no_grad()
def test_frozen_weights_that_were_changed_are_saved(tmp_path):
    partly_frozen(tmp_path).save_pretrained(tmp_path / "model")
    for part, weights in (("text", "text.embeddings."), ("vision", "vision.backbone.")):
        model = MHSANModel.from_pretrained(tmp_path / "model")
        next(weight for name, weight in model.named_parameters() if name.startswith(weights)).add_(1)
        model.save_pretrained(tmp_path / "changed")
        assert not (model.config.save_frozen_weights or model.config.vision_config.save_frozen_weights)
        loaded = MHSANModel.from_pretrained(tmp_path / "changed")
        assert_same_weights(loaded, model)
        assert loaded.config.save_frozen_weights is (part == "text"), part
        assert loaded.config.vision_config.save_frozen_weights is (part == "vision"), part
    half = MHSANModel.from_pretrained(tmp_path / "model").half()
    half.save_pretrained(tmp_path / "half")
    assert not [name for name in load_file(tmp_path / "half" / "model.safetensors") if ".backbone." in name]
