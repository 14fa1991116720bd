"""`hf-ngsan explain --counterfactual`: boxes change, features do not, and both captions are compared."""

import json

import numpy as np

from hf_ngsan.data import load_data
from hf_ngsan.tasks.captioning_analysis import change_boxes
from tests.tables import each_row
from tests.tasks.tiny import DATA

from .running import fails, prints

SPEC = DATA["spec"]
BOXES = np.array([[0.1, 0.2, 0.3, 0.6], [0.5, 0.5, 0.9, 0.7]])


def test_changes_of_boxes_by_hand():
    for kind, region, expected in (
        ("move", 0, [[0.3, 0.2, 0.5, 0.6], BOXES[1]]),
        ("move", 1, [BOXES[0], [0.6, 0.5, 1.0, 0.7]]),  # to the edge
        ("scale", 0, [[0.0, 0.0, 0.4, 0.8], BOXES[1]]),
        ("scale", 1, [BOXES[0], [0.3, 0.4, 1.0, 0.8]]),
        ("mirror", 0, [[0.7, 0.2, 0.9, 0.6], BOXES[1]]),
        ("swap", 0, BOXES[::-1]),
    ):
        np.testing.assert_allclose(change_boxes(BOXES, kind, region), expected, atol=1e-12, err_msg=kind)


@each_row("kind", ["move", "scale", "mirror", "swap"])
def test_a_change_is_told_as_json_and_drawn(scene_captioner, tmp_path, capsys, kind):
    command = ["explain", "--model", scene_captioner, "--data", SPEC, "--counterfactual", kind, "--row", 1]
    figure = ["--figure", tmp_path / "change.png"] if kind == "move" else []
    actual = json.loads(prints(capsys, *command, *figure))
    row = load_data(SPEC, "test")[1]
    before, after = actual["before"], actual["after"]
    assert actual["image_id"] == row["image_id"] and actual["change"] == kind
    np.testing.assert_allclose(before["boxes"], row["visual_boxes"], rtol=1e-6)
    assert before["boxes"] != after["boxes"] and len(after["boxes"]) == len(before["boxes"])
    assert before["words"] == after["words"] == before["caption"].split()
    assert abs(before["log_probability"] - after["log_probability"]) > 1e-3, "NG-SAN reads geometry"
    weights = np.array(before["attention"])
    assert weights.shape == (len(before["words"]), len(row["visual_boxes"]))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-4)
    assert not figure or figure[1].stat().st_size > 1000


def test_what_does_not_go_together(run, tmp_path, capsys):
    moved = ["explain", "--model", run, "--data", SPEC, "--counterfactual", "move"]
    for option, number in (("--row", 99), ("--region", 77)):
        assert "from 0" in fails(capsys, *moved, option, number)
    change = ["--counterfactual", "score", "--data", SPEC]
    assert "--data" in fails(capsys, "explain", "--model", run, "photo.png", *change)
    assert "IMAGE" in fails(capsys, "explain", "--model", run, "photo.png", *change)
    assert "image" in fails(capsys, "explain", "--model", run, "photo.png")
    assert "--figure" in fails(capsys, "explain", "--model", run, *change, "--figure", tmp_path / "score.png")
    videos = ["--data", "moving_scenes:size=4,validation=2,test=2"]
    assert "visual_boxes" in fails(capsys, "explain", "--model", run, *change[:2], *videos)


def test_scores_of_scenes(run, tmp_path, capsys):
    file = tmp_path / "scores.json"
    assert not prints(capsys, "explain", "--model", run, "--data", SPEC, "--counterfactual", "score", "--output", file)
    actual = json.loads(file.read_text())
    assert actual.keys() == {"symmetric", "directional"}
    assert all(0 <= group["follow"] <= 1 and group["swaps"] > 0 for group in actual.values())
