"""Boxes in any convention arrive in that of the contract, or are refused."""

import numpy as np

from hf_ngsan.data.formats import CONVENTIONS
from hf_ngsan.data.formats.rows import contract_boxes
from tests.data.facts import fails_naming
from tests.tables import each_row

SIZE = (200, 100)
CORNERS = np.array([[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.75, 0.875]])


def written(convention):
    x1, y1, x2, y2 = CORNERS.T
    columns = {
        "xyxy": (x1, y1, x2, y2),
        "xywh": (x1, y1, x2 - x1, y2 - y1),
        "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    }[convention.removesuffix("-normalized")]
    boxes = np.stack(columns, axis=1)
    return boxes if convention.endswith("-normalized") else boxes * np.tile(SIZE, 2)


@each_row("convention", CONVENTIONS)
def test_every_convention_becomes_that_of_the_contract(convention):
    boxes = contract_boxes(written(convention), SIZE, convention, "here")
    assert boxes.dtype == np.float32
    np.testing.assert_array_equal(boxes, CORNERS.astype(np.float32))


def test_rounding_is_clipped_and_no_more_is():
    boxes = np.array([[-0.6, 0, 200.9, 100]])
    np.testing.assert_array_equal(contract_boxes(boxes, SIZE, None, "here"), [[0, 0, 1, 1]])
    with fails_naming("here", "box 0", "200 x 100"):
        contract_boxes(boxes + np.array([0, 0, 0.2, 0]), SIZE, None, "here")


@each_row(
    ("box", "fact"),
    [([5, 5, 5, 9], "area"), ([9, 5, 5, 9], "area"), ([np.nan, 0, 5, 9], "finite"), ([-9, 0, 5, 9], "-9")],
)
def test_a_box_that_is_none_is_named(box, fact):
    with fails_naming("here", "box 1", fact):
        contract_boxes(np.array([[0, 0, 9, 9], box]), SIZE, None, "here")


def test_one_wrong_box_does_not_decide_the_size_of_the_image():
    in_pixels = np.array([[0, 0, 199.0, 49.5], [10, 20, 1e9, 99], [5, 5, 50, 50]])
    normalized = np.array([[0.1, 0.1, 0.5, 0.9], [0.1, 0.1, 3.0, 0.9], [0.0, 0.0, 0.5, 0.5]])
    for boxes in (in_pixels, normalized):
        with fails_naming("here", "box 1"):
            contract_boxes(boxes, None, None, "here")
