import os
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from PIL import Image
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrImageProcessor

from hf_ngsan.cli import main, parse
from hf_ngsan.commands.extract import check
from hf_ngsan.data import load_data
from hf_ngsan.extraction import read_extraction
from tests.extraction.test_vision import DETECTOR
from tests.extraction.tiny import tiny_processor, tiny_vision, write_coco_file, write_photos
from tests.tables import each_row

DATA = os.environ.get("HF_NGSAN_TEST_DATA")


@pytest.fixture(scope="module")
def vision(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vision")
    tiny_vision().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detector")
    torch.manual_seed(0)
    model = RTDetrForObjectDetection(RTDetrConfig(**DETECTOR))
    for name, parameter in model.named_parameters():
        if "bbox_embed" in name and name.endswith("layers.2.bias"):
            parameter.data[2:] = 5.0  # boxes as large as the image, which overlap
    model.save_pretrained(folder)
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def command(*arguments) -> int:
    return main(["extract", *map(str, arguments)])


def test_it_prints_what_it_has_done_and_skipped(vision, tmp_path, capsys):
    photos = write_photos(tmp_path / "photos", 4)
    (photos / "000002.png").write_bytes(b"")
    (photos / "000003.png").unlink()
    (photos / "000003.jpg").mkdir()
    output = tmp_path / "out"
    arguments = ["--images", photos, "--backbone", vision, "--output", output, "--split", "test", "--num-workers", "2"]
    arguments.append("--skip-errors")
    assert command(*arguments) == 0
    printed = capsys.readouterr().out
    assert "000002.png" in printed and "features of 2 images (2 new, " in printed and ", 1 skipped." in printed
    assert len(load_data(f"features:{output}", "test")) == 2
    assert command(*arguments) == 0
    assert "new" not in capsys.readouterr().out


def test_copies_are_changed_images_that_resume_and_do_not_mix(vision, tmp_path, capsys):
    photos, output = write_photos(tmp_path / "photos", 4), tmp_path / "out"
    arguments = ["--images", photos, "--backbone", vision, "--output", output, "--split", "train", "--num-workers", "0"]
    assert command(*arguments) == 0
    assert command(*arguments, "--copies", "2") == 0
    folders = [output, output / "copies" / "1", output / "copies" / "2"]
    originals, *copies = (load_data(f"features:{folder}", "train") for folder in folders)
    for rows in copies:
        assert rows["image_id"] == originals["image_id"]
        assert all((rows[i]["visual_features"] != originals[i]["visual_features"]).any() for i in range(4))
    assert (copies[0][0]["visual_features"] != copies[1][0]["visual_features"]).any()
    before = {path: path.stat().st_mtime_ns for path in (output / "copies").rglob("*.arrow")}
    assert command(*arguments, "--copies", "2") == 0
    assert {path: path.stat().st_mtime_ns for path in (output / "copies").rglob("*.arrow")} == before
    assert read_extraction(output / "copies" / "2")["change"]["flip"] == 0.5
    capsys.readouterr()
    assert command(*arguments, "--copies", "2", "--flip", "0") == 2
    assert str(output / "copies" / "1") in capsys.readouterr().err


UNCHANGED = {"--smallest-crop": "1", "--flip": "0", "--color-jitter": "0", "--seed": "0"}


@each_row("changed", [{"--smallest-crop": "0.3"}, {"--flip": "1"}, {"--color-jitter": "0.9"}])
def test_a_copy_is_changed_by_what_is_asked_for_alone(vision, tmp_path, changed):
    photos, features = write_photos(tmp_path / "photos", 2), {}
    for name, options in (("unchanged", {}), ("changed", changed), ("another", {**changed, "--seed": "1"})):
        words = [word for pair in {**UNCHANGED, **options}.items() for word in pair]
        arguments = ["--images", photos, "--backbone", vision, "--output", tmp_path / name, "--split", "train"]
        assert command(*arguments, "--num-workers", "0", "--dtype", "float32", "--copies", "1", *words) == 0
        features[name] = load_data(f"features:{tmp_path / name / 'copies' / '1'}", "train")[0]["visual_features"]
        original = load_data(f"features:{tmp_path / name}", "train")[0]["visual_features"]
    assert (features["unchanged"] == original).all()
    assert (features["changed"] != original).any()
    assert (features["another"] == features["changed"]).all() == ("--flip" in changed)


def test_regions_that_overlap_or_score_low_are_left_out(detector, tmp_path):
    photos, number = write_photos(tmp_path / "photos", 1), {}
    every = {"--suppression-threshold": "1", "--score-threshold": "0", "--num-regions": "6"}
    for changed in ({}, {"--suppression-threshold": "0"}, {"--score-threshold": "1"}, {"--num-regions": "2"}):
        words = [word for pair in {**every, **changed}.items() for word in pair]
        output = tmp_path / "".join(["out", *changed])
        arguments = ["--images", photos, "--backbone", detector, "--output", output, "--num-workers", "0"]
        assert command(*arguments, *words) == 0
        number["".join(changed)] = len(load_from_disk(str(output))[0]["visual_boxes"])
    assert number[""] == 6 and number["--num-regions"] == 2
    assert number["--suppression-threshold"] < 6 and number["--score-threshold"] == 1  # the best one is always kept


@each_row("has_captions", [False, True])
def test_what_features_are_good_for_depends_on_captions(vision, tmp_path, capsys, has_captions):
    photos = write_photos(tmp_path / "photos", 2)
    names = {1: "000001.png", 2: "000002.png"}
    file = write_coco_file(photos / "list.json", names, {1: ["a"], 2: ["b"]} if has_captions else None)
    arguments = ["--images", file, "--backbone", vision, "--output", tmp_path / "out", "--num-workers", "0"]
    assert command(*arguments, "--split", "test") == 0
    printed = capsys.readouterr().out
    assert ("training and evaluation need captions" in printed) != has_captions
    assert f"as features:{tmp_path / 'out'}, split test" in printed


def test_images_of_every_bad_kind_are_skipped_with_a_sentence_each(vision, tmp_path, capsys):
    photos = write_photos(tmp_path / "photos", 2)
    Image.new("RGB", (64, 64)).save(photos / "cut.jpg")
    (photos / "cut.jpg").write_bytes((photos / "cut.jpg").read_bytes()[:-200])
    (photos / "text.jpg").write_text("hello")
    Image.new("1", (20000, 20000)).save(photos / "bomb.png")
    (photos / "loop.png").symlink_to("loop.png")
    options = ["--backbone", vision, "--output", tmp_path / "out", "--num-workers", "1", "--skip-errors"]
    assert command("--images", photos, *options) == 0
    printed = capsys.readouterr().out
    for name in ("cut.jpg", "text.jpg", "bomb.png", "loop.png"):
        assert len([line for line in printed.splitlines() if line.startswith("skipped: ") and name in line]) == 1
    assert len(load_from_disk(str(tmp_path / "out"))) == 2


@each_row(
    ("changes", "message"),
    [
        ({"--images": "absent"}, "absent does not exist"),
        ({"--images": "empty"}, "holds no images"),
        ({"--backbone": "absent"}, "There is no model folder"),
        ({"--backbone": "photos"}, "holds no model"),
        ({"--output": "file"}, "is a file"),
        ({"--output": "file/within"}, "is a file"),
        ({"--output": "photos"}, "no extraction"),
        ({"--grid-size": ("3", "3")}, "does not apply"),
        ({"--image-folder": "photos"}, "leave it out"),
    ],
)
def test_mistakes_are_errors_of_one_sentence_and_write_nothing(vision, tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.chdir(tmp_path)
    write_photos(Path("photos"), 1)
    Path("empty").mkdir()
    Path("file").touch()
    arguments = {"--images": "photos", "--backbone": vision, "--output": "out", **changes}
    words = [
        word for key, value in arguments.items() for word in (key, *([value] if type(value) is not tuple else value))
    ]
    assert command(*words) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("hf-ngsan: error: ") and message in error
    with pytest.raises((ValueError, OSError), match=message):
        check(parse(["extract", *map(str, words)]))
    assert sorted(os.listdir()) == ["empty", "file", "photos"] and not os.listdir("empty")


def test_mistakes_are_told_before_processes_are_started(vision, tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr("hf_ngsan.io.processes.run_processes", lambda *arguments: started.append(arguments) or 7)
    photos = write_photos(tmp_path / "photos", 1)
    options = ["--backbone", vision, "--output", tmp_path / "out", "--num-workers", "0", "--num-processes", "2"]
    assert command("--images", tmp_path / "absent", *options) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "absent does not exist" in line and not started
    assert command("--images", photos, *options) == 7
    assert [number for _, number in started] == [2]
