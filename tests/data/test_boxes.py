from itertools import product

import numpy as np

from hf_ngsan.data.contract import BOX_TOLERANCE, check_boxes
from hf_ngsan.models.processing_captioning import pad_visual_inputs


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


def test_rows_and_models_agree_on_boxes_at_the_edges():
    sides = [edge + step for edge in (-BOX_TOLERANCE, 0.0, 1 + BOX_TOLERANCE) for step in (0.0, -1e-7, 1e-7, 1e-4)]
    for dtype in (np.float64, np.float32, np.float16):
        for low, high in product([*sides, np.nan], [*sides, np.inf, 0.5]):
            boxes = boxes_of([low, 0.25, high, 1.0], dtype)
            of_models = verdict(lambda boxes=boxes: pad_visual_inputs([np.ones((1, 3))], [boxes]))
            assert verdict(lambda boxes=boxes: check_boxes(boxes, 1, "here")) == of_models, boxes
