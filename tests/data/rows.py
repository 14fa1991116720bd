"""Rows of the feature contract for tests."""

import numpy as np
from datasets import Dataset

from hf_ngsan.data import caption_features


def make_row(image_id=5, regions=3, width=4, **changes) -> dict:
    """A row with random features and boxes, equal for equal numbers of regions."""
    random = np.random.default_rng(regions)
    low = random.random((regions, 2)) * 0.5
    boxes = np.concatenate([low, low + 0.1 + random.random((regions, 2)) * 0.4], axis=1).astype(np.float32)
    features = random.standard_normal((regions, width)).astype(np.float16)
    return {"image_id": image_id, "visual_features": features, "visual_boxes": boxes, "captions": ["a cat"]} | changes


def dataset_of(rows, width=4, **columns) -> Dataset:
    """A dataset of such rows; columns are those of `caption_features`."""
    return Dataset.from_list(list(rows), features=caption_features(width, **columns))
