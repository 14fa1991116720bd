"""Photographs of users: the folder and the commands of docs/own_photographs.md, with a tiny captioner."""

import json
import re
import shutil
from pathlib import Path

import pytest
from datasets import Dataset

from hf_ngsan.cli import main
from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.readers import set_aside
from hf_ngsan.exporting.onnx_folder import open_captioner
from tests.commands.running import fails, prints
from tests.exporting import eager
from tests.models.tiny_photos import photo
from tests.tables import each_row
from tests.test_documents import ROOT, blocks, commands_of

PAGE = ROOT / "docs" / "own_photographs.md"
TINY = ["training.epochs=1", "training.batch_size=4", "training.tracker=null", "evaluation.num_beams=1"]


def write_photos(folder: Path, number: int) -> Path:
    """The folder of the page, with more photographs, one of which has no caption."""
    [metadata] = blocks(PAGE, "csv")
    names = dict.fromkeys(re.findall(r"^(\S+\.\w+),", metadata, flags=re.MULTILINE))
    more = [f"more {place}.jpg" for place in range(number - len(names))]
    for place, name in enumerate([*names, *more, "unnamed.jpg"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        photo((40, 28), seed=place).convert("RGB").save(folder / name)
    lines = "".join(f"{name},a red ball near the blue box {place}\n" for place, name in enumerate(more))
    (folder / "metadata.csv").write_text(metadata + lines, encoding="utf-8")
    return folder


@pytest.fixture
def here(captioner, tmp_path, monkeypatch):
    """A folder with the photographs of the page and a tiny captioner, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_photos(tmp_path / "photos", 24)
    shutil.copytree(captioner, tmp_path / "tiny")
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(here, capsys, caplog, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    _, train, _, before, after, *_ = commands_of(PAGE)
    (here / "tiny" / "onnx").mkdir()
    (here / "tiny" / "confidence.json").touch()
    assert main([*train, *TINY, "model.init_from=tiny"]) == 0
    output = capsys.readouterr()
    assert "runs/fine_tune/best/onnx: " in output.out and open_captioner("runs/fine_tune/best") is not None
    assert "2 photographs are too few" in output.err and "calibrate --model runs/fine_tune/best --data" in output.err
    assert "2 of 24 images" in caplog.text and "unknown" in caplog.text and "on 22 images" in caplog.text
    _, validation = set_aside(load_data("images:photos", "train"), "photos")
    for command in (before, after):
        command = [word.replace("ngsan-photos", "tiny") for word in command]
        prints(capsys, *command, "--output", "captions.json")
        captioned = json.loads(Path("captions.json").read_text())
        assert [entry["image_id"] for entry in captioned] == validation["image_id"][:]


def test_broken_photographs_are_all_named_before_the_training_starts(here, capsys):
    cut = Path("photos/beach.jpg").read_bytes()
    Path("photos/beach.jpg").write_bytes(cut[: len(cut) // 2])
    Path("photos/more 3.jpg").write_bytes(b"no image")
    Path("photos/more 8.jpg").rename("photos/more 8.heic")  # the photographs for validation
    message = fails(capsys, *commands_of(PAGE)[1], *TINY, "model.init_from=tiny")
    assert all(fact in message for fact in ("3 of 24", "beach.jpg", "more 3.jpg", "more 8.jpg"))
    assert not Path("runs").exists()


@each_row(("number", "chosen"), [(4, [1, 3]), (9, [1, 3, 5, 7]), (10, [4, 9]), (25, [9, 19])])
def test_which_rows_are_set_aside(number, chosen):
    rest, validation = set_aside(Dataset.from_dict({"row": list(range(number))}), "mine")
    assert validation["row"][:] == chosen
    assert sorted([*rest["row"], *chosen]) == list(range(number))


def test_too_few_rows_to_set_some_aside(here, capsys):
    with pytest.raises(DataError, match=r"mine.*validation_split=null"):
        set_aside(Dataset.from_dict({"row": [0, 1, 2]}), "mine")
    command = [*commands_of(PAGE)[1], *TINY, "model.init_from=tiny", "data.limit=3"]
    assert "validation_split=null" in fails(capsys, *command)
    header, *_, item, two, three = Path("photos/metadata.csv").read_text().splitlines()
    Path("photos/metadata.csv").write_text("\n".join([header, item, two, three]))  # captions of known words
    assert main([*command, "data.validation_split=null"]) == 0
