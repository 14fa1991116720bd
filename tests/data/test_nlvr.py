"""NLVR's statements with their structured scenes: regions, splits, parts of splits, and errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.data import load_data
from tests.data.facts import fails_naming

pytestmark = pytest.mark.usefixtures("cache")
ITEMS = [
    [{"x_loc": 10, "y_loc": 80, "type": "circle", "color": "Yellow", "size": 20}],
    [],
    [
        {"x_loc": 0, "y_loc": 70, "type": "square", "color": "Black", "size": 30},
        {"x_loc": 90, "y_loc": 0, "type": "triangle", "color": "#0099ff", "size": 10},
    ],
]


def example(identifier="12-3", directory="0", **changes) -> dict:
    fields = {"sentence": "There is a box.", "label": "true", "identifier": identifier, "directory": directory}
    return {**fields, "evals": {"r0": "false"}, "structured_rep": ITEMS, **changes}


def write(folder: Path, examples: list, name: str = "dev") -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.json").write_text("\n".join(map(json.dumps, examples)), encoding="utf-8")
    return folder


def test_items_and_boxes_are_regions_where_they_are_in_the_picture(tmp_path):
    write(tmp_path, [example()])
    [row] = load_data(f"nlvr:{tmp_path}", "dev")
    assert (row["question_id"], row["image_id"], row["question"]) == (12003, 12003, "There is a box.")
    assert row["answers"] == ["true"] and (row["width"], row["height"], row["split"]) == (400, 100, "dev")
    names = ["medium yellow circle", "large black square", "small blue triangle", "box", "box", "box"]
    assert row["objects"] == names
    pixels = row["visual_boxes"] * np.array([400, 100, 400, 100])
    expected = [[10, 80, 30, 100], [300, 70, 330, 100], [390, 0, 400, 10]]
    expected += [[left, 0, left + 100, 100] for left in (0, 150, 300)]
    np.testing.assert_allclose(pixels, expected, atol=1e-3)
    features = row["visual_features"]
    assert features.shape == (6, 10) and set(features.ravel()) == {0.0, 1.0}
    assert features.sum(1).tolist() == [3, 3, 3, 1, 1, 1]
    assert len(np.unique(features, axis=0)) == 4


def test_positions_regions_and_pictures_are_choices(tmp_path):
    write(tmp_path, [example(directory="4")])
    [row] = load_data(f"nlvr:{tmp_path},positions=true", "dev")
    np.testing.assert_allclose(row["visual_features"][:, 10:], row["visual_boxes"])
    [row] = load_data(f"nlvr:{tmp_path},regions=false", "dev")
    assert row["visual_features"].tolist() == [[0.0] * 10] and row["visual_boxes"].tolist() == [[0, 0, 1, 1]]
    with pytest.raises(FileNotFoundError, match=r"dev-12-3-0\.png"):
        load_data(f"nlvr:{tmp_path},images=true", "dev")
    (tmp_path / "dev" / "images" / "4").mkdir(parents=True)
    Image.new("RGB", (400, 100), (255, 0, 0)).save(tmp_path / "dev" / "images" / "4" / "dev-12-3-0.png")
    [row] = load_data(f"nlvr:{tmp_path},images=true", "dev")
    assert row["image"].size == (400, 100)


def test_a_split_has_parts_by_directory(tmp_path):
    write(tmp_path, [example(f"{number}-0", str(number % 3)) for number in range(7)])

    def numbers(split):
        return [image_id // 1000 for image_id in load_data(f"nlvr:{tmp_path}", split)["image_id"]]

    assert numbers("dev") == numbers("validation") == [*range(7)]
    assert numbers("dev/1") == numbers("val/1") == [1, 4]
    assert numbers("dev-1") == [0, 2, 3, 5, 6]
    with fails_naming("dev/7"):
        load_data(f"nlvr:{tmp_path}", "dev/7")
    for change in ({"identifier": "12"}, {"label": "maybe"}, {"structured_rep": ITEMS[:2]}):
        write(tmp_path, [example(**change)], "broken")
        with fails_naming("broken.json, line 1"):
            load_data(f"nlvr:{tmp_path}", "broken")
    for missing in ("test", "dev/x", "dev-"):
        with fails_naming(missing, "dev"):
            load_data(f"nlvr:{tmp_path}", missing)
