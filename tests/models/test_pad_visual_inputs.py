"""Padding and checking of features and boxes."""

import numpy as np
import pytest

from hf_ngsan.models.processing_captioning import pad_visual_inputs
from tests.models.tiny import random_boxes

FEATURES = [np.ones((3, 5), np.float16), np.full((1, 5), 2.0)]
BOXES = [random_boxes(3).numpy(), random_boxes(1).numpy()]


def changed(boxes: list, row: int, box: int, values: list[float]) -> list[np.ndarray]:
    copies = [array.copy() for array in boxes]
    copies[row][box] = values
    return copies


def test_what_would_go_unnoticed_is_refused():
    nan = float("nan")
    wrong = {
        "no region": ([np.zeros((0, 5))], None),
        "a vector": ([np.zeros(5), np.zeros(5)[None, None]], None),
        "NaN feature": ([FEATURES[0], np.full((1, 5), nan)], None),
        "infinite feature": ([np.full((1, 5), np.inf)], None),
        "fewer images": (FEATURES, BOXES[:1]),
        "fewer boxes": (FEATURES, [BOXES[0][:2], BOXES[1]]),
        "three numbers": (FEATURES, [BOXES[0], BOXES[1][:, :3]]),
        "NaN box": (FEATURES, changed(BOXES, 1, 0, [0, 0, nan, 1])),
        "pixels": (FEATURES, changed(BOXES, 0, 2, [10, 20, 300, 200])),
        "negative": (FEATURES, changed(BOXES, 0, 2, [-0.2, 0, 1, 1])),
        "turned around": (FEATURES, changed(BOXES, 0, 2, [0.5, 0, 0.25, 1])),
        "boxes alone, turned around": (None, changed(BOXES, 0, 2, [0.5, 0, 0.25, 1])),
    }
    for case, (features, boxes) in wrong.items():
        try:
            pad_visual_inputs(features, boxes)
        except ValueError:
            continue
        pytest.fail(case)
