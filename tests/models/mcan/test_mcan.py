"""MCAN: its equations, its contracts, and its processor."""

import numpy as np
import pytest
import torch

from hf_ngsan.models.attention_maps import question_attention
from tests.models.mcan.loops import logits_of
from tests.models.mcan.tiny import ANSWERS, random_inputs, tiny_model, tiny_processor
from tests.tables import each_row

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SIGNED = {"geometric_bias": ["content", "query", "key"], "geometry_features": "signed"}


@each_row("fields", [{}, {"geometric_bias": ["query"]}])
@torch.no_grad()
def test_logits_are_the_equations(fields):
    model, inputs = tiny_model(**fields), random_inputs([4, 2], [3, 5])
    logits = model(**inputs).logits
    for row, (words, regions) in enumerate(((4, 3), (2, 5))):
        visual = [inputs[name][row, :regions] for name in ("visual_features", "visual_boxes")]
        torch.testing.assert_close(logits[row], logits_of(model, inputs["input_ids"][row, :words], *visual), **CLOSE)
    assert (logits[0] - logits[1]).abs().max() > 0.1


@each_row("fields", [{}, {"geometric_bias": ["query"]}, SIGNED])
@each_row("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(fields, attention):
    model, inputs = tiny_model(**fields), random_inputs([4, 1, 6], [5, 2, 1])
    model.set_attn_implementation(attention)
    together = model(**inputs)
    for row, (words, regions) in enumerate(((4, 5), (1, 2), (6, 1))):
        sizes = {"input_ids": words, "attention_mask": words}
        alone = model(**{name: value[row : row + 1, : sizes.get(name, regions)] for name, value in inputs.items()})
        torch.testing.assert_close(alone.logits[0], together.logits[row], atol=1e-5, rtol=1e-5)
        assert together.question_glimpses[row, :, words:].abs().sum() == 0
        assert together.image_glimpses[row, :, regions:].abs().sum() == 0
        torch.testing.assert_close(together.image_glimpses[row].sum(-1), torch.ones(2))


def test_the_loss_is_binary_cross_entropy_of_soft_targets():
    inputs, labels = random_inputs([3, 2], [4, 4]), torch.rand(2, len(ANSWERS))
    for reduction, divisor in (("sum", 1), ("mean", 2)):
        output = tiny_model(loss_reduction=reduction)(**inputs, labels=labels)
        probability = output.logits.sigmoid()
        expected = -(labels * probability.log() + (1 - labels) * (1 - probability).log()).sum() / divisor
        torch.testing.assert_close(output.loss, expected)
    with pytest.raises(ValueError, match=r"\[2, 4\].*\[2, 5\]"):
        tiny_model()(**inputs, labels=labels[:, 1:])


@each_row(
    ("changes", "message"),
    [
        ({"visual_features": None}, "visual_features"),
        ({"input_ids": None}, "input_ids"),
        ({"visual_boxes": None}, "visual_boxes"),
        ({"visual_attention_mask": torch.ones(2, 3)}, "visual_attention_mask"),
        ({"visual_features": torch.rand(2, 4, 5)}, r"\(2, 4, 5\).* 12"),
        ({"input_ids": torch.ones(3, 2, dtype=torch.long)}, "2 images and 3 questions"),
        ({"visual_features": None, "pixel_values": torch.rand(2, 3, 8, 8)}, "no vision encoder"),
    ],
)
def test_wrong_inputs_are_refused(changes, message):
    model, inputs = tiny_model(geometric_bias=["query"]), random_inputs([3, 2], [4, 4])
    with pytest.raises(ValueError, match=message):
        model(**{**inputs, **changes})


@torch.no_grad()
def test_words_are_spread_over_regions_by_guided_attention():
    model, processor = tiny_model(), tiny_processor()
    inputs = processor(text=["Is there a ball?", "zebra"], visual_features=[torch.randn(3, 12), torch.randn(5, 12)])
    output = model(**inputs, output_attentions=True, attn_implementation="eager")
    attentions = output.cross_attentions
    for layer, expected in ((None, sum(attentions) / 2), (1, attentions[1])):
        (words, weights, regions), (unknown, *_) = question_attention(model, processor.tokenizer, inputs, layer=layer)
        means = expected[0, :, :3, :4].mean(0).T
        np.testing.assert_allclose(weights, means / means.sum(-1, keepdim=True), atol=1e-6)
    assert words == ["is", "there", "a", "ball"] and unknown == ["<unk>"]
    np.testing.assert_allclose(regions, output.image_glimpses[0, :, :3].mean(0), atol=1e-6)


def test_questions_are_padded_behind_their_words_and_cut():
    batch = tiny_processor(max_length=4)(
        text=["What color is the ball, left of the box?", "There's a T-shirt/box!"],
        visual_features=[torch.ones(3, 12), torch.ones(2, 12)],
    )
    assert batch["input_ids"].tolist() == [[2, 3, 4, 5], [1, 8, 1, 1]]
    assert batch["visual_attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    batch = tiny_processor()(text=["a ball", "Is there: a box?"])
    assert batch["input_ids"].tolist() == [[8, 6, 0, 0], [4, 7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
