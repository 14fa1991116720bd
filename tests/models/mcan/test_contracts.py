"""MCAN against its equations, its contracts, and the ways of loading it."""

import json

import numpy as np
import pytest
import torch

from hf_ngsan import save_for_hub
from hf_ngsan.models.attention_maps import question_attention
from tests.loading.test_hub import result_of
from tests.models.mcan.loops import logits_of
from tests.models.mcan.tiny import ANSWERS, random_inputs, tiny_model, tiny_processor
from tests.tables import each_row

VARIANTS = {
    "MCAN": {},
    "query": {"geometric_bias": ["query"]},
    "all, signed": {"geometric_bias": ["content", "query", "key"], "geometry_features": "signed"},
}
SIGNED = VARIANTS["all, signed"]


@each_row("variant", ["MCAN", "query"])
@torch.no_grad()
def test_logits_are_the_equations(variant):
    model, inputs = tiny_model(**VARIANTS[variant]), random_inputs([4, 2], [3, 5])
    logits = model(**inputs).logits
    for row, (words, regions) in enumerate(((4, 3), (2, 5))):
        one = (
            inputs["input_ids"][row, :words],
            *(inputs[name][row, :regions] for name in ("visual_features", "visual_boxes")),
        )
        torch.testing.assert_close(logits[row], logits_of(model, *one), atol=1e-5, rtol=1e-4)
    assert (logits[0] - logits[1]).abs().max() > 0.1


@each_row("variant", VARIANTS)
@each_row("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(variant, attention):
    model, inputs = tiny_model(**VARIANTS[variant]), random_inputs([4, 1, 6], [5, 2, 1])
    model.set_attn_implementation(attention)
    together = model(**inputs)
    for row, (words, regions) in enumerate(((4, 5), (1, 2), (6, 1))):
        sizes = {"input_ids": words, "attention_mask": words}
        alone = model(**{name: value[row : row + 1, : sizes.get(name, regions)] for name, value in inputs.items()})
        torch.testing.assert_close(alone.logits[0], together.logits[row], atol=1e-5, rtol=1e-5)
        assert together.question_glimpses[row, :, words:].abs().sum() == 0
        assert together.image_glimpses[row, :, regions:].abs().sum() == 0
        torch.testing.assert_close(together.image_glimpses[row].sum(-1), torch.ones(2))


@torch.no_grad()
def test_masks_follow_from_padding_as_in_the_release():
    model, inputs = tiny_model(), random_inputs([4, 2], [3, 5])
    bare = {name: inputs[name] for name in ("input_ids", "visual_features")}
    torch.testing.assert_close(model(**bare).logits, model(**inputs).logits)


def test_the_loss_is_binary_cross_entropy_of_soft_targets():
    inputs, labels = random_inputs([3, 2], [4, 4]), torch.rand(2, len(ANSWERS))
    for reduction, divisor in (("sum", 1), ("mean", 2)):
        output = tiny_model(loss_reduction=reduction)(**inputs, labels=labels)
        probability = output.logits.sigmoid()
        expected = -(labels * probability.log() + (1 - labels) * (1 - probability).log()).sum() / divisor
        torch.testing.assert_close(output.loss, expected)
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(2, 5\)"):
        tiny_model()(**inputs, labels=labels[:, 1:])


@each_row(
    ("changes", "message"),
    [
        ({"visual_features": None}, "not both"),
        ({"input_ids": None}, "not both"),
        ({"visual_boxes": None}, r"visual_boxes .*geometric_bias=\['query'\]"),
        ({"visual_boxes": torch.rand(2, 3, 4)}, r"visual_boxes .*\(2, 3, 4\)"),
        ({"visual_attention_mask": torch.ones(2, 3)}, r"visual_attention_mask \(2, 3\)"),
        ({"visual_features": torch.rand(2, 4, 5)}, r"\(2, 4, 5\).* 12"),
        ({"input_ids": torch.ones(3, 2, dtype=torch.long)}, "2 images and 3 questions"),
        ({"input_ids": torch.ones(2, 0, dtype=torch.long)}, "at least one word"),
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
    output = model(**inputs)
    model.set_attn_implementation("eager")
    attentions = model(**inputs, output_attentions=True).cross_attentions
    model.set_attn_implementation("sdpa")
    for layer, expected in ((None, sum(attentions) / 2), (1, attentions[1])):
        (words, weights, regions), (unknown, *_) = question_attention(model, processor.tokenizer, inputs, layer=layer)
        of_words = expected[0, :, :3, :4].mean(0).T
        np.testing.assert_allclose(weights, of_words / of_words.sum(-1, keepdim=True), atol=1e-6)
    assert words == ["is", "there", "a", "ball"] and unknown == ["<unk>"]
    np.testing.assert_allclose(regions, output.image_glimpses[0, :, :3].mean(0), atol=1e-6)
    with pytest.raises(ValueError, match="layer 2"):
        question_attention(model, processor.tokenizer, inputs, layer=2)


@pytest.mark.slow
def test_another_process_without_the_package_loads_and_asks_it(tmp_path):
    save_for_hub(tiny_model(**SIGNED), tiny_processor(), tmp_path / "model")
    inputs = random_inputs([3], [4])
    torch.save(inputs, tmp_path / "inputs.pt")
    row = {name: inputs[name][0].tolist() for name in ("visual_features", "visual_boxes")}
    code = f"""
import json, torch
from transformers import AutoModel, AutoModelForVisualQuestionAnswering, AutoProcessor, pipeline
folder = {str(tmp_path / "model")!r}
model = AutoModelForVisualQuestionAnswering.from_pretrained(folder, trust_remote_code=True).eval()
base = AutoModel.from_pretrained(folder, trust_remote_code=True)
pipe = pipeline("visual-question-answering", model=folder, trust_remote_code=True)
answers = pipe({{**{row!r}, "question": "Is there a ball?"}}, top_k=2)
with torch.no_grad():
    logits = model(**torch.load({str(tmp_path / "inputs.pt")!r})).logits
home = type(model).__module__.split(".")[0]
print(json.dumps([home, type(base).__name__, logits.tolist(), answers]))
"""
    home, base, logits, answers = result_of(code, tmp_path)
    assert (home, base) == ("transformers_modules", "MCANModel")
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(logits), tiny_model(**SIGNED)(**inputs).logits)
    assert len(answers) == 2 and {answer["answer"] for answer in answers} <= set(ANSWERS)
    assert "mcan" in json.loads((tmp_path / "model" / "config.json").read_text())["model_type"]
