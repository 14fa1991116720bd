"""Relative and absolute geometry and the geometric bias against loops over eq. 8, 9 and 11-13 of Guo et al. 2020."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.models.geometry import GeometricBias, absolute_geometry, relative_geometry
from tests.models.tiny import random_boxes
from tests.tables import each_row

BIAS_SUBSETS = [list(kinds) for n in (1, 2, 3) for kinds in itertools.combinations(("content", "query", "key"), n)]
GRID = 64


@st.composite
def dyadic_boxes(draw, max_regions: int = 5) -> torch.Tensor:
    """Boxes of one image on a grid of 1/64, so that halving, doubling and shifting by the grid are exact."""
    corner, side = st.integers(0, GRID // 2), st.integers(1, GRID // 2)
    rows = draw(st.lists(st.tuples(corner, corner, side, side), min_size=1, max_size=max_regions))
    return torch.tensor([[[x, y, x + w, y + h] for x, y, w, h in rows]], dtype=torch.float32) / GRID


def relative_geometry_by_loops(boxes: list[list[float]], features: str) -> torch.Tensor:
    """Eq. 8 pair by pair, in double precision."""
    result = torch.zeros(len(boxes), len(boxes), 4, dtype=torch.float64)
    for i, (left_i, top_i, right_i, bottom_i) in enumerate(boxes):
        for j, (left_j, top_j, right_j, bottom_j) in enumerate(boxes):
            width_i, height_i = right_i - left_i, bottom_i - top_i
            ratio_x = ((left_j + right_j) / 2 - (left_i + right_i) / 2) / width_i
            ratio_y = ((top_j + bottom_j) / 2 - (top_i + bottom_i) / 2) / height_i
            for channel, ratio in enumerate((ratio_x, ratio_y)):
                unsigned = math.log(max(abs(ratio), 1e-3))
                result[i, j, channel] = unsigned if features == "unsigned" else math.asinh(ratio / 0.2)
            result[i, j, 2] = math.log(width_i / (right_j - left_j))
            result[i, j, 3] = math.log(height_i / (bottom_j - top_j))
    return result


@each_row("features", ["unsigned", "signed"])
def test_relative_geometry_is_equation_8(features):
    boxes = random_boxes(3, 6)
    computed = relative_geometry(boxes, features)
    assert computed.shape == (3, 6, 6, 4)
    for image, geometry in zip(boxes, computed, strict=True):
        expected = relative_geometry_by_loops(image.double().tolist(), features)
        torch.testing.assert_close(geometry.double(), expected, rtol=1e-4, atol=1e-4)


@each_row("features", ["unsigned", "signed"])
@settings(deadline=None, max_examples=50)
@given(
    boxes=dyadic_boxes(),
    exponent=st.integers(-8, 8),
    shift=st.tuples(st.integers(-GRID, GRID), st.integers(-GRID, GRID)),
)
def test_scaling_and_translating_all_boxes_changes_no_bit(features, boxes, exponent, shift):
    moved = (boxes + torch.tensor([*shift, *shift]) / GRID) * 2.0**exponent
    assert torch.equal(relative_geometry(moved, features), relative_geometry(boxes, features))


@each_row("features", ["unsigned", "signed"])
@each_row(
    "case",
    [
        [[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]],
        [[0.1, 0.1, 0.1, 0.4], [0.3, 0.2, 0.3, 0.2]],
        [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]],
        [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
        [[0.5, 0.5, 0.2, 0.2], [0.0, 0.0, 1.0, 1.0]],
    ],
)
def test_degenerate_boxes_keep_values_and_gradients_finite(features, case):
    boxes = torch.tensor([case], requires_grad=True)
    geometry = relative_geometry(boxes, features)
    geometry.square().sum().backward()
    assert geometry.isfinite().all()
    assert boxes.grad.isfinite().all()


def test_absolute_geometry_is_sinusoids_of_centre_and_size_in_percent():
    boxes = random_boxes(2, 3)
    computed = absolute_geometry(boxes, 32)
    assert computed.shape == (2, 3, 32)
    for image, region in itertools.product(range(2), range(3)):
        x1, y1, x2, y2 = boxes[image, region].tolist()
        expected = []
        for value in ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1):
            angles = [100 * value / 10000 ** (2 * pair / 8) for pair in range(4)]
            expected += [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        assert computed[image, region].tolist() == pytest.approx(expected, abs=1e-4)


def bias_by_loops(module: GeometricBias, states: torch.Tensor, geometry: torch.Tensor, kind: str) -> torch.Tensor:
    """Eq. 11, 12 or 13, one head and one pair of regions at a time."""
    batch_size, num_regions, _ = states.shape
    heads, channels = module.num_heads, geometry.shape[-1]
    result = torch.zeros(batch_size, heads, num_regions, num_regions)
    for image, head, i, j in itertools.product(*map(range, result.shape)):
        pair = geometry[image, i, j]
        if kind == "content":
            score = module.content_proj.weight[head] @ pair + module.content_proj.bias[head]
            result[image, head, i, j] = max(0.0, score.item())
        else:
            projection, region = (module.query_proj, i) if kind == "query" else (module.key_proj, j)
            part = slice(head * channels, (head + 1) * channels)
            projected = projection.weight[part] @ states[image, region] + projection.bias[part]
            result[image, head, i, j] = sum((projected[c] * pair[c]).item() for c in range(channels))
    return result


@torch.no_grad()
@each_row("kinds", BIAS_SUBSETS)
def test_bias_is_the_sum_of_equations_11_to_13(kinds):
    torch.manual_seed(0)
    module = GeometricBias(hidden_size=6, num_heads=3, geometry_hidden_size=4, kinds=kinds)
    states, geometry = torch.randn(2, 4, 6), torch.randn(2, 4, 4, 4)
    computed = module(states, geometry)
    assert computed.shape == (2, 3, 4, 4)
    expected = sum(bias_by_loops(module, states, geometry, kind) for kind in kinds)
    torch.testing.assert_close(computed, expected, rtol=1e-5, atol=1e-5)
