"""`hf-ngsan convert` as a person runs it."""

import numpy as np
import pytest
from datasets import load_from_disk

from tests.commands.running import fails, prints
from tests.data.formats.files import features_of, tsv_line, write_pth, write_tsv, write_vatex


def test_a_file_becomes_a_folder_with_a_summary(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv", [tsv_line(7), tsv_line(12, image_h=0), tsv_line(391895)])
    message = fails(capsys, "convert", path, "--output", tmp_path / "out")
    assert f"{path}, line 2" in message and "--skip-errors" in message
    assert not (tmp_path / "out").exists()
    text = prints(capsys, "convert", path, "--output", tmp_path / "out", "--skip-errors")
    assert "line 2" in text and "2 images" in text and "dimension 6" in text and "1 skipped" in text
    assert len(load_from_disk(str(tmp_path / "out"))) == 2
    assert "out" in fails(capsys, "convert", path, "--output", tmp_path / "out")


def test_the_format_can_be_named(tmp_path, capsys):
    path = write_vatex(tmp_path / "val")
    assert "2 to 4 each" in prints(capsys, "convert", path, "--from", "vatex", "--output", tmp_path / "out")
    assert "vqa-npz" in fails(capsys, "convert", path, "--from", "vqa-npz", "--output", tmp_path / "more")


def first_row(folder):
    return load_from_disk(str(folder))[0]


def test_features_keep_the_precision_that_is_asked_for(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv", [tsv_line(7)])
    for kind, options in (("float16", []), ("float32", ["--dtype", "float32"])):
        prints(capsys, "convert", path, "--output", tmp_path / kind, *options)
        stored = np.array(first_row(tmp_path / kind)["visual_features"], np.float32)
        np.testing.assert_array_equal(stored, features_of(7).astype(kind).astype(np.float32))


def test_boxes_are_read_in_the_convention_that_is_named(tmp_path, capsys):
    centres = np.array([[32, 24, 16, 12], [16, 12, 8, 8], [40, 30, 8, 8]], np.float32)  # of an image of 64 x 48
    path = write_tsv(tmp_path / "regions.tsv", [tsv_line(7, boxes=centres)])
    for convention, corners in (("cxcywh", [0.375, 0.375, 0.625, 0.625]), ("xywh", [0.5, 0.5, 0.75, 0.75])):
        prints(capsys, "convert", path, "--output", tmp_path / convention, "--boxes", convention)
        assert first_row(tmp_path / convention)["visual_boxes"][0] == pytest.approx(corners)


def test_grids_are_pooled_to_the_size_that_is_named(tmp_path, capsys):
    path = write_pth(tmp_path / "grids")
    for name, options, cells in (("own", [], 6), ("pooled", ["--grid-size", 2, 1], 2)):
        prints(capsys, "convert", path, "--output", tmp_path / name, *options)
        assert len(first_row(tmp_path / name)["visual_features"]) == cells


def test_the_split_and_the_size_of_shards_are_those_that_are_named(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv")
    for name, options, shards in (("one", [], 1), ("three", ["--images-per-shard", 1, "--split", "val"], 3)):
        prints(capsys, "convert", path, "--output", tmp_path / name, *options)
        assert len([*(tmp_path / name).glob("*.arrow")]) == shards
    assert first_row(tmp_path / "three")["split"] == "val" and first_row(tmp_path / "one").get("split") is None
