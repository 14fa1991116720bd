"""Regions that a user drags: boxes, captions, and the attention of each region to the others."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .drawing import captions_of, drawing, regions_over, table_of, viewer
from .parts import Parts

MIN_SIDE = 0.03
"""Smallest side of a box as a share of the image, so that its corner can still be dragged."""
INVITATION = "Drag an object, or its lower right corner, with mouse or finger: captions and attention follow."
NOTE = (
    "The arrow keys move a region too, and with Shift its corner. Lines and table tell how much the region that was "
    "moved last attends to the others in the encoder (mean over layers and heads). Tap a word, or point at it, to see "
    "where the captioner looked for it."
)


def moved(boxes: np.ndarray, change: Mapping[str, Any]) -> np.ndarray:
    """Returns boxes `(N, 4)` after one of them was moved or resized within the image.

    Args:
        boxes: x1, y1, x2, y2 within [0, 1].
        change: `index` of the box, `dx` and `dy` as shares of width and height, and `corner`, whether they move its
            lower right corner alone.

    Raises:
        ValueError: no such box, or no finite numbers.
    """
    if not isinstance(change, Mapping):
        raise ValueError("The request names no region and no movement.")
    index: Any = change.get("index")
    step: list[Any] = [change.get("dx"), change.get("dy")]
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(boxes):
        raise ValueError(f"There is no region {index!r:.40}; there are {len(boxes)}.")
    if not all(isinstance(value, int | float) and abs(value) < math.inf for value in step):
        raise ValueError(f"A region cannot be moved by {step!r:.80}; give two finite numbers.")
    boxes = np.array(boxes, dtype=np.float32)
    box, by = boxes[index], np.array([max(-2, min(2, value)) for value in step], dtype=np.float64)
    if change.get("corner"):
        box[2:] = np.clip(box[2:] + by, np.minimum(box[:2] + MIN_SIDE, 1), 1)
        box[:2] = np.minimum(box[:2], box[2:] - MIN_SIDE)
    else:
        size = box[2:] - box[:2]
        box[:2] = np.clip(box[:2] + by, 0, 1 - size)
        box[2:] = np.minimum(box[:2] + size, 1)
    return boxes


class Regions:
    """An example of a dataset whose regions a user drags.

    Args:
        parts: parts with a captioner of features and boxes.
        row: row of the dataset.
        boxes: `(N, 4)`, instead of the row's.
    """

    def __init__(self, parts: Parts, row: Mapping[str, Any], boxes: np.ndarray | None = None):
        self.parts = parts
        self.features = np.asarray(row["visual_features"], dtype=np.float32)
        self.names: list[str] = row.get("objects") or [f"region {place + 1}" for place in range(len(self.features))]
        self.boxes = np.asarray(row["visual_boxes"] if boxes is None else boxes, dtype=np.float32)
        self.shape = f"aspect-ratio: {row.get('width') or 1} / {row.get('height') or 1}"

    @cached_property
    def attention(self) -> np.ndarray:
        """Attention of each of N regions to each in the encoder, `(N, N)`: the mean over layers and heads."""
        pipeline = self.parts.pipeline
        inputs = pipeline.processor(visual_features=[self.features], visual_boxes=[self.boxes])
        names = ("visual_features", "visual_boxes", "attention_mask")
        visual = {name: inputs[name].to(pipeline.device) for name in names if name in inputs}
        with torch.inference_mode():
            encoder = pipeline.model.model.encoder
            encoded = encoder(**visual, output_attentions=True, attn_implementation="eager")
        return torch.stack(encoded.attentions).float().mean((0, 2))[0].cpu().numpy()

    def html(self, chosen: int, before: np.ndarray, num_beams: int) -> str:
        """Returns the drawing, its captions, and the weights of the chosen region beside those before."""
        answers = self.parts.captions({"visual_features": self.features, "visual_boxes": self.boxes}, num_beams)
        found = captions_of(answers, lambda weights: regions_over(self.boxes, weights, self.shape))
        stage = drawing(self.names, self.boxes, chosen, self.attention, self.shape)
        return viewer(stage, [*found, table_of(self.names, chosen, self.attention, before)], NOTE, kind="wide")
