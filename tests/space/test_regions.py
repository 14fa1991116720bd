"""Regions that are moved: boxes stay in the image, and weights and captions are updated."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.data import load_data
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.space.parts import Parts, Regions, moved
from tests.models.tiny import make_lively, tiny_captioner, tiny_processor

BOXES = np.array([[0.1, 0.2, 0.4, 0.6], [0.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.9, 0.6]], np.float32)
STEPS = st.floats(-1e6, 1e6)


@given(st.integers(0, 2), STEPS, STEPS, st.booleans())
def test_a_moved_box_stays_in_the_image_and_the_others_where_they_are(index, dx, dy, corner):
    actual = moved(BOXES, {"index": index, "dx": dx, "dy": dy, "corner": corner})
    others = [place for place in range(3) if place != index]
    assert (actual[others] == BOXES[others]).all()
    x, y, right, bottom = actual[index]
    assert 0 <= x < right <= 1 and 0 <= y < bottom <= 1
    if not corner:
        np.testing.assert_allclose(
            actual[index, 2:] - actual[index, :2], BOXES[index, 2:] - BOXES[index, :2], atol=1e-6
        )


def test_a_box_is_moved_by_the_step_and_resized_at_its_corner():
    np.testing.assert_allclose(moved(BOXES, {"index": 0, "dx": 0.2, "dy": -0.1})[0], [0.3, 0.1, 0.6, 0.5], atol=1e-6)
    np.testing.assert_allclose(
        moved(BOXES, {"index": 0, "dx": 0.2, "dy": -0.1, "corner": True})[0], [0.1, 0.2, 0.6, 0.5], atol=1e-6
    )


@pytest.fixture(scope="module")
def row() -> dict:
    return dict(load_data("scenes:size=5,seed=1", "test")[0])


@pytest.fixture(scope="module")
def parts(row) -> Parts:
    size = len(row["visual_features"][0])
    model = tiny_captioner(visual_feature_size=size, geometric_bias=["query"], num_hidden_layers=2)
    make_lively(model, seed=0)
    return Parts("tiny", CaptioningPipeline(model=model, processor=tiny_processor()))


def test_weights_are_the_mean_of_the_encoders_attention(parts, row):
    example = Regions(parts, row)
    weights = example.attention
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    model = parts.pipeline.model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model.model.encoder(
            torch.tensor(example.features)[None], visual_boxes=torch.tensor(example.boxes)[None], output_attentions=True
        )
    model.set_attn_implementation("sdpa")
    layers = [heads[0].mean(0).numpy() for heads in outputs.attentions]
    np.testing.assert_allclose(weights, sum(layers) / len(layers), atol=1e-6)


def test_moving_a_region_changes_its_weights(parts, row):
    before = Regions(parts, row)
    boxes = moved(before.boxes, {"index": 0, "dx": 0.5, "dy": 0.5})
    after = Regions(parts, row, boxes)
    assert (after.boxes == boxes).all() and np.abs(after.attention - before.attention).max() > 1e-4


def test_the_page_of_an_example_has_its_regions_captions_and_weights(parts, row):
    example = Regions(parts, row)
    weights = example.attention
    before = Regions(parts, row)
    before.attention = weights + 0.25
    html = example.html(1, before, num_beams=2)
    assert html.count('class="region') == len(example.boxes) and html.count("<polygon") == len(example.boxes)
    assert html.count('<p class="caption') == 2 and html.count("<line") == len(example.boxes) - 1
    assert f"<td>{weights[1].max():.3f}</td><td>-0.250</td>" in html
    [expected, _] = parts.pipeline(row, num_beams=2, num_return_sequences=2)
    for word in expected["generated_text"].split():
        assert f">{word}<" in html


def test_names_of_a_dataset_are_text_and_not_html(parts, row):
    named = {**row, "objects": ["<script>"] * len(row["visual_boxes"])}
    example = Regions(parts, named)
    html = example.html(0, example, num_beams=1)
    assert "<script>" not in html and "&lt;script&gt;" in html
