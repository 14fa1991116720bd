"""Geometric weights against eq. 8, 9 and 11 of Guo et al. 2020, and the figures of them."""

import math

import numpy
import pytest

from hf_ngsan.visualization import geometric_weights, plot_geometric_weights
from tests.models.tiny import tiny_captioner
from tests.tables import each_row

GEOMETRY = [(0.5, 1.5, 2.0, 0.5), (3.0, 0.1, 1.0, 1.0), (0.0, 2.0, 0.3, 3.0), (-1.2, 0.7, 0.5, 0.5)]


def slow_weights(model, features, layer):
    """ReLU(w_g . ReLU(FC(f))) for each head, with the values of the model's state dict."""
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    embedding = "model.encoder.geometry_embedding.projection"
    projection = f"model.encoder.layers.{layer}.geometric_bias.content_proj"

    def linear(name, values):
        rows, biases = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return [
            max(0.0, bias + sum(w * v for w, v in zip(row, values, strict=True)))
            for row, bias in zip(rows, biases, strict=True)
        ]

    return linear(projection, linear(embedding, features))


@each_row("layer", [0, 1])
@each_row("features", ["unsigned", "signed"])
def test_weights_are_those_of_the_equations(features, layer):
    model = tiny_captioner(geometric_bias=["content", "query"], geometry_features=features)
    columns = numpy.array(GEOMETRY).T
    weights = geometric_weights(model, *columns, layer=layer)
    assert weights.shape == (4, len(GEOMETRY))
    assert (weights > 0).any()
    for index, (dx, dy, dw, dh) in enumerate(GEOMETRY):
        if features == "signed":
            position = [math.asinh(dx / 0.2), math.asinh(dy / 0.2)]
        else:
            position = [math.log(max(abs(dx), 1e-3)), math.log(max(abs(dy), 1e-3))]
        expected = slow_weights(model, [*position, math.log(dw), math.log(dh)], layer)
        numpy.testing.assert_allclose(weights[:, index], expected, atol=1e-4)


def test_arguments_broadcast():
    model = tiny_captioner(geometric_bias=["content"])
    dx, dy = numpy.meshgrid([0.5, 1.0, 2.0], [0.1, 3.0])
    grid = geometric_weights(model, dx, dy, 1, 2.0)
    assert grid.shape == (4, 2, 3)
    numpy.testing.assert_allclose(grid[:, 1, 2], geometric_weights(model, 2.0, 3.0, 1, 2), atol=1e-6)


def test_layers_are_counted_from_the_end_too():
    model = tiny_captioner(geometric_bias=["content"])
    first, last, counted = (geometric_weights(model, *GEOMETRY[0], layer=layer) for layer in (0, 1, -1))
    assert (counted == last).all() and not (first == last).all()
    with pytest.raises(IndexError):
        geometric_weights(model, *GEOMETRY[0], layer=2)


@each_row("vary", ["position", "size"])
@each_row("features", ["unsigned", "signed"])
def test_figures_show_the_weights(vary, features):
    model = tiny_captioner(geometric_bias=["content"], geometry_features=features)
    figure = plot_geometric_weights(model, vary, layer=1, head=2)
    panels = figure.axes[:3]
    assert [panel.get_title()[-3:].strip("= ") for panel in panels] == ["0.5", "1", "2"]
    for panel, fixed in zip(panels, (0.5, 1.0, 2.0), strict=True):
        [image] = panel.images
        values = image.get_array()
        left, right, bottom, top = image.get_extent()
        rows = numpy.linspace(min(bottom, top), max(bottom, top), len(values))
        columns = numpy.linspace(left, right, len(values))
        row, column = 100, 30
        varied = (columns[column], rows[row])
        geometry = (*varied, fixed, fixed) if vary == "position" else (fixed, fixed, *varied)
        expected = geometric_weights(model, *geometry, layer=1)[2]
        numpy.testing.assert_allclose(values[row, column], expected, atol=1e-5)
        low = -3 if (vary, features) == ("position", "signed") else 0
        assert (round(left, 1), right) == (low, 3)


def test_only_a_content_independent_bias_can_be_shown():
    for kinds in ([], ["query"]):
        with pytest.raises(ValueError, match="content"):
            plot_geometric_weights(tiny_captioner(geometric_bias=kinds))


def test_the_bias_of_a_region_is_drawn_over_all_regions_of_an_image():
    from PIL import Image

    from hf_ngsan.visualization import plot_geometric_bias
    from tests.extraction.tiny import BACKBONE
    from tests.extraction.tiny import tiny_processor as tiny_image_processor
    from tests.models.tiny import tiny_captioner, tiny_processor

    vision = {"backbone_config": BACKBONE, "grid_size": [2, 3]}
    model = tiny_captioner(vision_config=vision, visual_feature_size=8).eval()
    processor = tiny_processor()
    processor = type(processor)(tiny_image_processor(), processor.tokenizer)
    figure = plot_geometric_bias(model, processor, Image.new("RGB", (30, 20)), region=4)
    config = model.config
    assert len(figure.axes) == config.num_hidden_layers * config.num_attention_heads
    boxes = [patch.get_bbox().bounds for patch in figure.axes[0].patches]
    assert len(boxes) == 6 + 1 and boxes[-1] == pytest.approx((10, 10, 10, 10))
    detected = [[0, 0, 15, 20], [15, 0, 30, 10], [20, 10, 30, 20]]
    options = {"region": 1, "boxes": detected, "names": ["dog", "ball", ""]}
    panel = plot_geometric_bias(model, processor, Image.new("RGB", (30, 20)), **options).axes[0]
    assert panel.patches[-1].get_bbox().bounds == pytest.approx((15, 0, 15, 10))
    assert {text.get_text() for text in panel.texts} == {"dog", "ball"}
    with pytest.raises(IndexError):
        plot_geometric_bias(model, processor, Image.new("RGB", (30, 20)), region=6)
    plain = tiny_captioner(vision_config=vision, visual_feature_size=8, geometric_bias=[]).eval()
    with pytest.raises(ValueError):
        plot_geometric_bias(plain, processor, Image.new("RGB", (30, 20)))
