import os
import warnings
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


def test_options_of_reading_are_followed(vision, tmp_path, workers):
    names = {1: "000001.png", 2: "000002.png", 3: "000003.png"}
    photos = write_photos(tmp_path / "photos", 3)
    listed = ["--images", write_coco_file(tmp_path / "list.json", names), "--image-folder", photos]
    options = ["--backbone", vision, "--split", "test", "--output"]
    assert command(*listed, *options, tmp_path / "one", "--num-workers", "0") == 0
    assert command(*listed, *options, tmp_path / "three", "--num-workers", "3", "--images-per-shard", "1") == 0
    assert {*workers} == {0, 3}
    assert [len([*(tmp_path / name).glob("*.arrow")]) for name in ("one", "three")] == [1, 3]
    (photos / "000002.png").write_bytes(b"")
    assert command(*listed, *options, tmp_path / "stopped", "--num-workers", "0") == 2
    assert command(*listed, *options, tmp_path / "skipping", "--num-workers", "0", "--skip-errors") == 0


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


def test_a_second_split_is_told_alone(vision, tmp_path, capsys):
    write_photos(tmp_path / "first", 4)
    (tmp_path / "first" / "000002.png").write_bytes(b"")
    write_photos(tmp_path / "second", 2, first=11)
    for split in ("train", "test"):
        photos = tmp_path / ("first" if split == "train" else "second")
        arguments = ["--images", photos, "--backbone", vision, "--output", tmp_path / "out", "--num-workers", "0"]
        assert command(*arguments, "--skip-errors", "--split", split) == 0
        printed = capsys.readouterr().out
    assert "skipped: " not in printed
    assert "features of 2 images (2 new, " in printed and "0 skipped. The folder has 5 in all." in printed


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


@each_row(
    "wrong",
    [
        ["--batch-size", "0"],
        ["--score-threshold", "1.5"],
        ["--num-workers", "-1"],
        ["--grid-size", "7"],
        ["--dtype", "f"],
    ],
)
def test_misuse_exits_with_2(wrong, capsys):
    with pytest.raises(SystemExit) as exit_:
        command("--images", "a", "--backbone", "b", "--output", "c", *wrong)
    assert exit_.value.code == 2 and wrong[0] in capsys.readouterr().err


@pytest.mark.skipif(not DATA, reason="HF_NGSAN_TEST_DATA does not name the folder of real data")
def test_photos_of_coco_without_a_warning(vision, tmp_path, capsys):
    photos = Path(DATA) / "data" / "coco_photos"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, split in (("captions.json", "test"), ("images", "all")):
            output = tmp_path / split
            assert command("--images", photos / name, "--backbone", vision, "--output", output, "--split", split) == 0
            assert "features of 96 images" in capsys.readouterr().out
    with_captions, without = load_data(f"features:{tmp_path / 'test'}", "test"), load_from_disk(str(tmp_path / "all"))
    assert all(len(row["captions"]) == 5 for row in with_captions)
    order = {image_id: index for index, image_id in enumerate(with_captions["image_id"][:])}
    assert sorted(order) == without["image_id"][:]
    first = without[0]
    numbers = with_captions[order[first["image_id"]]]["visual_features"]
    assert abs(numbers - first["visual_features"]).max() < 1e-2
