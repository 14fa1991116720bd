"""The attention of a word is that of the decoding step that generated it, also from pixels; maps of the image."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.models.attention_maps import attention_maps, grid_edges, word_attention
from hf_ngsan.models.modeling_vision import cell_boxes
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_tokenizer
from tests.tables import each_row

IMAGES = random_images([5, 3, 4])
TOKENIZER = tiny_tokenizer()
RANDOM = np.random.default_rng(3)


def slow_bilinear(cells: np.ndarray, width: int, height: int) -> np.ndarray:
    """Each pixel separately: four cells around its centre, weighted by their distance."""
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
    for actual, grid in zip(maps, weights, strict=True):
        np.testing.assert_allclose(actual, slow_bilinear(grid.reshape(rows, columns), width, height), atol=1e-5)


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


def step_by_step(model, inputs, sequence, layer=None):
    """Attention of each decoding step `(words, regions)`: the decoder runs on prefixes of increasing length."""
    rows = []
    for length in range(1, len(sequence)):
        outputs = model(**inputs, decoder_input_ids=sequence[None, :length], output_attentions=True)
        layers = [attention[0, :, -1].mean(0) for attention in outputs.cross_attentions]
        rows.append(torch.stack(layers).mean(0) if layer is None else layers[layer])
    return torch.stack(rows)


@each_row(("num_beams", "returned"), [(1, 1), (3, 2)])
@each_row("layer", [None, -1])
def test_weights_are_those_of_the_decoding_steps(num_beams, returned, layer):
    model, reference = tiny_captioner(), tiny_captioner(attn_implementation="eager")
    sequences = model.generate(**IMAGES, num_beams=num_beams, num_return_sequences=returned, min_new_tokens=2)
    captions = word_attention(model, TOKENIZER, IMAGES, sequences, layer)
    for index, ((words, weights), sequence) in enumerate(zip(captions, sequences, strict=True)):
        assert words == TOKENIZER.decode(sequence, skip_special_tokens=True).split() and len(words) >= 2
        expected = step_by_step(reference, one_image(IMAGES, index // returned), sequence[: len(words) + 1], layer)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, expected.detach(), atol=1e-6)
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)


@each_row("implementation", ["sdpa", "eager"])
def test_the_model_is_given_back_as_it_was(implementation):
    model, image = tiny_captioner(attn_implementation=implementation).train(), one_image(IMAGES, 0)
    sequences = torch.tensor([[1, 4, 5, 2]])
    [first], [second] = (word_attention(model, TOKENIZER, image, sequences) for _ in range(2))
    np.testing.assert_array_equal(first[1], second[1])  # no dropout
    with pytest.raises(ValueError, match="visual_features"):
        word_attention(model, TOKENIZER, {**image, "visual_features": torch.zeros(1, 5, 3)}, sequences)
    assert model.training and model.config._attn_implementation == implementation
