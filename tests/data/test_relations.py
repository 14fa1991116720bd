"""The reader `relations:DIR`: true statements about the boxes of detected objects."""

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from hf_ngsan.data import DataError, extra_scores_of, load_data
from hf_ngsan.data.scenes import Statement
from hf_ngsan.data.scenes.relations import AMBIGUOUS, answer_families
from hf_ngsan.data.scenes.scoring import relation_swaps

OBJECTS = {  # the dog is left of both balls, one of which is above it; the cat has a low score
    "dog": ([0.1, 0.4, 0.3, 0.6], 0.9),
    "sports ball": ([0.6, 0.1, 0.7, 0.2], 0.95),
    "sports ball 2": ([0.8, 0.45, 0.9, 0.55], 0.6),
    "cat": ([0.4, 0.8, 0.5, 0.9], 0.4),
}


@pytest.fixture
def folder(tmp_path):
    boxes, scores = zip(*OBJECTS.values(), strict=True)
    row = {
        "image_id": 7,
        "visual_features": np.arange(12, dtype=np.float32).reshape(4, 3).tolist(),
        "visual_boxes": boxes,
        "captions": ["a dog"],
        "objects": [name.removesuffix(" 2") for name in OBJECTS],
        "object_scores": scores,
    }
    alone = {**row, "image_id": 8, "object_scores": [0.9, 0.1, 0.1, 0.1]}
    DatasetDict({"train": Dataset.from_list([row, alone])}).save_to_disk(str(tmp_path / "features"))
    return tmp_path / "features"


def test_all_objects_of_a_class_make_a_statement_true(folder):
    [row] = load_data(f"relations:{folder}", "train")
    assert row["objects"] == ["sports ball", "dog", "sports ball"]  # the highest score first
    assert row["visual_features"][:, 0].tolist() == [3, 0, 6]
    assert {"the dog lies left of the sports ball", "the sports ball lies right of the dog"} <= {*row["captions"]}
    assert not any("hangs" in caption for caption in row["captions"])  # one ball is above the dog, the other is not
    for statement in map(Statement.from_caption, row["captions"]):
        pairs = [
            answer_families(box, other)[statement.family.name]
            for box, name in zip(row["visual_boxes"], row["objects"], strict=True)
            for other, its_name in zip(row["visual_boxes"], row["objects"], strict=True)
            if (name, its_name) == (statement.subject, statement.other)
        ]
        assert {*map(int, pairs)} == {statement.family.relations.index(statement.relation)} != {AMBIGUOUS}
    assert relation_swaps(row) == []  # of two balls


def test_exchanged_photographs_have_other_statements(folder):
    row, *others = load_data(f"relations:{folder},exchanged=true", "train")
    mirror, moved, both = others
    assert len({row["image_id"], *(other["image_id"] for other in others)}) == 4 and row["image_id"] == 7
    for item, other in ((mirror, row), (both, moved)):
        np.testing.assert_allclose(item["visual_boxes"][:, 0], 1 - other["visual_boxes"][:, 2], rtol=1e-6)
        turned = {"left of": "right of", "right of": "left of"}
        statements = map(Statement.from_caption, other["captions"])
        expected = {
            Statement(item.subject, turned.get(item.relation, item.relation), item.other) for item in statements
        }
        assert {*map(Statement.from_caption, item["captions"])} == expected
    np.testing.assert_array_equal(moved["visual_boxes"][1:], row["visual_boxes"][:-1])
    assert all((other["visual_features"] == row["visual_features"]).all() for other in others)


def test_completions_are_scored_by_group(folder):
    spec = f"relations:{folder}"
    rows = load_data(spec, "train")
    captions = rows[0]["captions"]
    scores = extra_scores_of(spec).compute(rows, ["the dog"], lambda places, prefixes: captions)
    assert scores == {"symmetric": 1, "directional": 1}


def test_features_without_objects_are_refused(tmp_path):
    row = {"image_id": 1, "visual_features": [[1.0]], "visual_boxes": [[0.0, 0, 1, 1]], "captions": ["a dog"]}
    DatasetDict({"train": Dataset.from_list([row])}).save_to_disk(str(tmp_path / "grid"))
    with pytest.raises(DataError):
        load_data(f"relations:{tmp_path / 'grid'}", "train")
