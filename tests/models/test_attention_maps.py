"""Attention of words as maps of the image, and from pixels."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.models.attention_maps import attention_maps, grid_edges, word_attention
from hf_ngsan.models.configuration_vision import VisionConfig
from hf_ngsan.models.modeling_vision import cell_boxes
from tests.models.tiny import tiny_captioner, tiny_tokenizer

RANDOM = np.random.default_rng(3)


def slow_bilinear(cells: np.ndarray, width: int, height: int) -> np.ndarray:
    """Each pixel by itself: four cells around its centre, weighted by nearness."""
    rows, columns = cells.shape
    result = np.empty((height, width))
    for y in range(height):
        for x in range(width):
            row = min(max((y + 0.5) / height * rows - 0.5, 0), rows - 1)
            column = min(max((x + 0.5) / width * columns - 0.5, 0), columns - 1)
            r, c = min(int(row), rows - 2) if rows > 1 else 0, min(int(column), columns - 2) if columns > 1 else 0
            total = 0
            for i in range(min(2, rows)):
                for j in range(min(2, columns)):
                    near = (1 - abs(row - r - i)) * (1 - abs(column - c - j))
                    total += max(near, 0) * cells[r + i, c + j]
            result[y, x] = total
    return result


@settings(max_examples=40, deadline=None)
@given(*[st.integers(1, 6)] * 2, *[st.integers(8, 40)] * 2)
def test_grids_are_interpolated_between_the_centres_of_cells(rows, columns, width, height):
    weights = RANDOM.random((3, rows * columns)).astype(np.float32)
    maps = attention_maps(weights, cell_boxes(rows, columns).numpy(), width, height)
    assert maps.dtype == np.float32
    assert maps.shape == (3, height, width)
    for found, of_word in zip(maps, weights, strict=True):
        np.testing.assert_allclose(found, slow_bilinear(of_word.reshape(rows, columns), width, height), atol=1e-5)


def test_regions_are_painted_and_overlaps_add_up():
    boxes = np.array([[0, 0, 0.5, 1], [0.25, 0.5, 1, 1], [0.9, 0.1, 0.9, 0.1]])
    maps = attention_maps(np.array([[0.2, 0.3, 0.5]]), boxes, 20, 10)
    expected = np.zeros((10, 20))
    expected[:, :10] += 0.2
    expected[5:, 5:] += 0.3
    expected[1, 18] += 0.5  # a box without area is one pixel
    np.testing.assert_allclose(maps[0], expected, atol=1e-6)


def test_what_is_a_grid():
    grid = cell_boxes(3, 4).numpy()
    assert grid_edges(grid) is not None
    assert grid_edges(cell_boxes(1, 1).numpy()) is not None
    for not_a_grid in (grid[::-1], grid[:-1], grid[:8], grid * 0.5, np.roll(grid, 1, axis=0), grid[:, [0, 1, 2, 1]]):
        assert grid_edges(not_a_grid) is None
    twice = np.concatenate([grid, grid])
    assert grid_edges(twice) is None


def test_pixels_give_the_attention_of_their_visual_tokens():
    backbone = {"model_type": "ngsan_vgg", "hidden_sizes": [6, 12], "depths": [1, 1]}
    vision = VisionConfig(backbone_config=backbone, grid_size=[2, 3])
    model, tokenizer = tiny_captioner(vision_config=vision, visual_feature_size=12), tiny_tokenizer()
    pixels = {"pixel_values": torch.rand(2, 3, 32, 40), "pixel_mask": torch.ones(2, 32, 40, dtype=torch.long)}
    pixels["pixel_mask"][1, 16:] = 0
    sequences = model.generate(**pixels, max_new_tokens=4)
    tokens = model.model.get_visual_tokens(**pixels)
    for found, expected in zip(
        word_attention(model, tokenizer, pixels, sequences),
        word_attention(model, tokenizer, tokens, sequences),
        strict=True,
    ):
        assert found[0] == expected[0]
        assert found[1].shape == (len(found[0]), 6)
        np.testing.assert_array_equal(found[1], expected[1])
