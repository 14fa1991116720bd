"""Boxes in pixels or relative coordinates follow the contract after conversion, or are errors."""

import numpy as np

from hf_ngsan.data.formats.rows import contract_boxes
from tests.data.facts import fails_naming
from tests.tables import each_row

SIZE = (200, 100)
CORNERS = np.array([[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.75, 0.875]])


def test_pixels_and_shares_become_shares():
    for boxes in (CORNERS, CORNERS * np.tile(SIZE, 2)):
        actual = contract_boxes(boxes, SIZE, "here")
        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual, CORNERS.astype(np.float32))


def test_every_order_becomes_corners():
    start, sides = CORNERS[:, :2], CORNERS[:, 2:] - CORNERS[:, :2]
    for order, begin in (("xywh", start), ("cxcywh", start + sides / 2)):
        boxes = np.concatenate([begin, sides], axis=1) * np.tile(SIZE, 2)
        np.testing.assert_array_equal(contract_boxes(boxes, SIZE, "here", order), CORNERS.astype(np.float32))


def test_rounding_is_clipped_and_no_more_is():
    boxes = np.array([[-0.6, 0, 200.9, 100]])
    np.testing.assert_array_equal(contract_boxes(boxes, SIZE, "here"), [[0, 0, 1, 1]])
    with fails_naming("here", "visual_boxes[0]", "200 x 100"):
        contract_boxes(boxes + np.array([0, 0, 0.2, 0]), SIZE, "here")


@each_row(
    ("box", "fact"),
    [([5, 5, 5, 9], "area"), ([9, 5, 5, 9], "area"), ([np.nan, 0, 5, 9], "finite"), ([-9, 0, 5, 9], "-9")],
)
def test_a_box_that_is_none_is_named(box, fact):
    with fails_naming("here", "visual_boxes[1]", fact):
        contract_boxes(np.array([[0, 0, 9, 9], box]), SIZE, "here")


def test_one_wrong_box_does_not_decide_the_size_of_the_image():
    in_pixels = np.array([[0, 0, 199.0, 49.5], [10, 20, 1e9, 99], [5, 5, 50, 50]])
    normalized = np.array([[0.1, 0.1, 0.5, 0.9], [0.1, 0.1, 3.0, 0.9], [0.0, 0.0, 0.5, 0.5]])
    for boxes in (in_pixels, normalized):
        with fails_naming("here", "visual_boxes[1]"):
            contract_boxes(boxes, None, "here")
