import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_ngsan.data.contract import BOX_TOLERANCE, check_boxes
from hf_ngsan.models.processing_captioning import pad_visual_inputs

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
