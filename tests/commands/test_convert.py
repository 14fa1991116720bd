"""`hf-ngsan convert` as a user runs it."""

from datasets import load_from_disk

from tests.commands.running import fails, prints
from tests.data.formats.files import tsv_line, write_pth, write_tsv
from tests.data.formats.test_annotations import write_karpathy


def test_a_file_becomes_a_folder_with_a_summary(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv", [tsv_line(7), tsv_line(12, image_h=0), tsv_line(391895)])
    message = fails(capsys, "convert", path, "--output", tmp_path / "out")
    assert f"{path}, line 2" in message and "--skip-errors" in message
    assert not (tmp_path / "out").exists()
    text = prints(capsys, "convert", path, "--output", tmp_path / "out", "--skip-errors")
    assert "line 2" in text and "2 images" in text and "dimension 6" in text and "1 skipped" in text
    assert len(load_from_disk(str(tmp_path / "out"))) == 2
    assert "out" in fails(capsys, "convert", path, "--output", tmp_path / "out")


def first_row(folder):
    return load_from_disk(str(folder))[0]


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


def test_a_folder_with_the_lock_of_a_killed_command_is_free(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".incomplete-lock").touch()
    prints(capsys, "convert", write_tsv(tmp_path / "regions.tsv"), "--output", tmp_path / "out")
    assert first_row(tmp_path / "out") and [*tmp_path.glob(".*")] == []


def test_annotations_are_converted_alone(tmp_path, capsys):
    text = prints(capsys, "convert", write_karpathy(tmp_path / "split.json"), "--output", tmp_path / "out")
    assert "3 rows" in text and "0 skipped" in text
    assert "captions" in first_row(tmp_path / "out")
