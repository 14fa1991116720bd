import json
import os
from pathlib import Path

import pytest

from hf_ngsan.cli import main, parse
from hf_ngsan.commands.extract import check
from hf_ngsan.data import load_data
from tests.commands.running import prints
from tests.extraction.tiny import write_photos
from tests.tables import each_row


def command(*arguments) -> int:
    return main(["extract", *map(str, arguments)])


def places(photos, vision, output) -> tuple:
    return "--images", photos, "--backbone", vision, "--output", output


def test_it_prints_what_it_has_done_and_skipped(vision, tmp_path, capsys):
    photos = write_photos(tmp_path / "photos", 4)
    (photos / "000002.png").write_bytes(b"")
    (photos / "000003.png").unlink()
    (photos / "000003.jpg").mkdir()
    output = tmp_path / "out"
    arguments = *places(photos, vision, output), "--split", "test", "--num-workers", "2", "--skip-errors"
    assert command(*arguments) == 0
    printed = capsys.readouterr().out
    assert "000002.png" in printed and "features of 2 images (2 new, " in printed and ", 1 skipped." in printed
    assert len(load_data(f"features:{output}", "test")) == 2
    assert command(*arguments) == 0
    assert "new" not in capsys.readouterr().out


def test_what_surprises_is_told(vision, tmp_path, capsys):
    photos = write_photos(tmp_path / "photos", 2)
    (photos / "000001.png").rename(photos / "photo.png")
    assert command(*places(photos, vision, tmp_path / "out"), "--num-workers", "0") == 0
    printed = capsys.readouterr().out
    assert "Note: " in printed and "--split" in printed
    assert "extracted with" in prints(capsys, "inspect", tmp_path / "out")


def test_copies_are_changed_images_that_resume_and_do_not_mix(vision, tmp_path, capsys):
    photos, output = write_photos(tmp_path / "photos", 4), tmp_path / "out"
    arguments = *places(photos, vision, output), "--split", "train", "--num-workers", "0"
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
    assert json.loads((output / "copies" / "2" / "extraction.json").read_text())["change"]["flip"] == 0.5
    capsys.readouterr()
    assert command(*arguments, "--copies", "2", "--flip", "0") == 2
    assert str(output / "copies" / "1") in capsys.readouterr().err


@each_row(
    ("changes", "message"),
    [
        ({"--images": "absent"}, "absent does not exist"),
        ({"--backbone": "absent"}, "There is no model folder"),
        ({"--output": "file"}, "is a file"),
        ({"--output": "photos"}, "another kind"),
        ({"--grid-size": ("3", "3")}, "does not apply"),
    ],
)
def test_mistakes_are_errors_of_one_sentence_and_write_nothing(vision, tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.chdir(tmp_path)
    write_photos(Path("photos"), 1)
    Path("empty").mkdir()
    Path("file").touch()
    arguments = {"--images": "photos", "--backbone": vision, "--output": "out", **changes}
    words = [word for key, it in arguments.items() for word in (key, *([it] if type(it) is not tuple else it))]
    assert command(*words) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("hf-ngsan: error: ") and message in error
    with pytest.raises((ValueError, OSError), match=message):
        check(parse(["extract", *map(str, words)]))
    assert sorted(os.listdir()) == ["empty", "file", "photos"] and not os.listdir("empty")
