import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hf_ngsan.data.contract import BOX_TOLERANCE, check_boxes
from hf_ngsan.models.processing_captioning import BOX_TOLERANCE as BOX_TOLERANCE_OF_MODELS
from hf_ngsan.models.processing_captioning import pad_visual_inputs
from tests.tables import each_row

EDGES = [
    edge + step
    for edge in (0.0, -BOX_TOLERANCE, 1.0, 1 + BOX_TOLERANCE)
    for step in (0.0, -1e-9, 1e-9, -1e-7, 1e-7, -1e-4, 1e-4)
]
SIDES = st.sampled_from([*EDGES, 0.25, 0.5, 2.0, -1.0, 1e39, np.nan, np.inf, -np.inf]) | st.floats(-0.01, 1.01)


def boxes_of(sides: list[float], dtype: type) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(sides, dtype=dtype).reshape(-1, 4)


def verdict(check) -> bool:
    try:
        with np.errstate(over="ignore"):
            check()
    except ValueError:
        return False
    return True


@settings(max_examples=500)
@given(
    st.lists(SIDES, min_size=4, max_size=12).map(lambda sides: sides[: len(sides) // 4 * 4]),
    st.sampled_from([np.float64, np.float32, np.float16]),
    st.booleans(),
)
@example([-BOX_TOLERANCE, 0.0, 1 + BOX_TOLERANCE, 1.0], np.float64, False)
@example([0.0, 0.0, 1.0, 1 + 2 * BOX_TOLERANCE], np.float64, False)
def test_rows_and_models_agree_on_every_box(sides, dtype, in_order):
    boxes = boxes_of(sides, dtype)
    if in_order:
        boxes = np.concatenate([np.minimum(*np.split(boxes, 2, 1)), np.maximum(*np.split(boxes, 2, 1))], axis=1)
    of_models = verdict(lambda: pad_visual_inputs([np.ones((len(boxes), 3))], [boxes]))
    assert verdict(lambda: check_boxes(boxes, len(boxes), "here")) == of_models


@given(
    arrays(np.float32, st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple), elements=st.just(0.5)),
    st.integers(1, 5),
)
def test_rows_and_models_agree_on_every_shape(boxes, num_regions):
    of_models = verdict(lambda: pad_visual_inputs([np.ones((num_regions, 3))], [boxes]))
    assert verdict(lambda: check_boxes(boxes, num_regions, "here")) == of_models == (boxes.shape == (num_regions, 4))


def test_the_tolerance_is_one():
    assert BOX_TOLERANCE == BOX_TOLERANCE_OF_MODELS


def test_good_boxes_are_returned_as_float32():
    boxes = check_boxes([[0, 0, 1, 1]], 1, "here")
    assert boxes.dtype == np.float32
    assert boxes.tolist() == [[0, 0, 1, 1]]


@each_row(
    ("boxes", "facts"),
    [
        ([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, np.nan, 1.0]], ["[1]", "nan"]),
        ([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 640.0, 1.0]], ["[1]", "640"]),
        ([[0.5, 0.0, 0.25, 1.0], [0.0, 0.0, 1.0, 1.0]], ["[0]", "0.5, 0, 0.25, 1"]),
        ([[0.0, 0.0, 1.0, 1.0]], ["1 boxes", "2 regions"]),
    ],
)
def test_an_error_names_the_place_and_the_box(boxes, facts):
    with pytest.raises(ValueError) as error:
        check_boxes(boxes, 2, "row 7")
    assert str(error.value).startswith("row 7: visual_boxes")
    assert all(fact in str(error.value) for fact in facts)
