"""Statements about the positions of detected objects in photographs, like those of synthetic scenes. The rules are
those of `scenes.relations`; answers are not balanced, so appearance alone can predict some of them.
"""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from .contract import caption_features
from .errors import DataError
from .prepared import Rows, prepare
from .saved import load_saved, stamps_of
from .scenes.relations import AMBIGUOUS, FAMILIES, Statement, answer_families

MIN_SCORE = 0.5
MAX_STATEMENTS = 20  # per photograph, so that photographs with many objects do not dominate


def load_relations(directory: str, split: str, *, exchanged: bool = False) -> Dataset:
    """Loads one split of `relations:DIR`: photographs with statements about their detected objects.

    Args:
        directory: a folder of region features, as for `features:DIR`, with the column `objects` (class names) and, for
            detections, `object_scores`. Objects with a score below 0.5 and regions without a name are left out.
        split: a split of this folder.
        exchanged: whether to add three copies of each photograph with the same features: mirrored, with exchanged
            objects, and both. Appearance then predicts almost nothing, as in scenes. Copies have negative ids.

    Returns:
        `datasets.Dataset` of the contract with `objects`; the captions are at most 20 [`statements_of`] the boxes.

    Raises:
        DataError: the folder has no such features, or no photograph with a statement.
    """
    rows = load_saved(directory, split)
    if not {"objects", "visual_boxes"} <= {*rows.column_names}:
        raise DataError(f"{directory} has no objects with boxes; extract features of regions with object names.")
    dimension = rows[0]["visual_features"].shape[1]
    parts = [stamps_of(Path(directory)), exchanged]
    features = caption_features(dimension, objects=True)
    return prepare("relations", 1, split, parts, lambda: Rows(features, related_rows(rows, exchanged)))


def related_rows(rows: Dataset, exchanged: bool) -> Iterator[dict[str, Any]]:
    for row in rows:
        scores = row.get("object_scores") or [1.0] * len(row["objects"])
        order = np.argsort(scores, kind="stable")[::-1]
        sure = [place for place in order if scores[place] >= MIN_SCORE and row["objects"][place]]
        names, boxes = [row["objects"][place] for place in sure], row["visual_boxes"][sure]
        layouts = [boxes]
        if exchanged:
            moved = np.roll(boxes, 1, axis=0)
            layouts += [mirrored_boxes(boxes), moved, mirrored_boxes(moved)]
        for number, layout in enumerate(layouts):
            statements = statements_of(names, layout)
            chosen = np.random.default_rng(abs(row["image_id"])).permutation(len(statements))[:MAX_STATEMENTS]
            if len(statements):
                yield {
                    "image_id": -(3 * row["image_id"] + number) if number else row["image_id"],
                    "visual_features": row["visual_features"][sure].astype(np.float16),
                    "visual_boxes": layout,
                    "captions": [statements[place].caption for place in chosen],
                    "objects": names,
                }


def mirrored_boxes(boxes: np.ndarray) -> np.ndarray:
    """Returns boxes `(N, 4)` with left and right exchanged."""
    return np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], axis=1)


def statements_of(names: list[str], boxes: np.ndarray) -> list[Statement]:
    """Returns the statements about two classes that are true for the boxes `(N, 4)` of their objects; if a class has
    several objects, the statement must be true for all of them."""
    places = {name: [place for place, other in enumerate(names) if other == name] for name in names}
    statements = []
    for subject, other in permutations(places, 2):
        answers = answer_families(boxes[places[subject], None], boxes[places[other]])
        for family in FAMILIES:
            [answer, *different] = np.unique(answers[family.name])
            if answer != AMBIGUOUS and not different:
                statements.append(Statement(subject, family.relations[answer], other))
    return statements
