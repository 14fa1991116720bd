"""Features, an index, and checkpoints that version 0.9 and earlier wrote are read, continued and verified."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_ngsan.data import load_data
from hf_ngsan.retrieval import IndexFolder, search
from hf_ngsan.training import Checkpoints
from hf_ngsan.training.checkpoints import read_checkpoint
from tests.commands.running import fails, prints
from tests.extraction.tiny import extract, files_of, write_photos
from tests.tables import each_row
from tests.training.test_checkpoints import trained

BEFORE = Path(__file__).parent / "written_before"


@pytest.fixture
def before(tmp_path):
    return shutil.copytree(BEFORE, tmp_path / "before")


def test_features_are_read_and_continued(before, tmp_path):
    assert load_data(f"features:{before / 'features'}", "test")["image_id"][:] == [1, 2, 3, 4, 5]
    photos, files = write_photos(tmp_path / "photos", 5), files_of(before / "features")
    assert extract(photos, before / "features", split="test").num_new == 0
    assert files_of(before / "features") == files
    assert load_data(f"features:{before / 'converted'}", None)["image_id"][:] == [0, 1, 2]


def test_an_index_is_searched_and_continued(before):
    index = IndexFolder.open(before / "index")
    for backend in ("exact", "usearch"):
        if backend == "usearch":
            pytest.importorskip("usearch")
        [hits] = search(index, np.array([[0, 1, 0]], np.float32), 2, backend)
        assert [(hit.name, hit.score, hit.captions) for hit in hits] == [
            ("1.jpg", 1.0, ("caption 1",)),
            ("4.jpg", 1.0, ("caption 4",)),
        ]
    shutil.rmtree(before / "index" / "shard-000001")
    again = IndexFolder.begin(before / "index", index.description)
    assert again.missing_shards() == [1] and set(again.stamps()) == {0, 1, 2, 3}


def test_a_checkpoint_is_resumed(before):
    folder = Checkpoints(before / "run" / "checkpoints").newest_intact()
    assert folder == before / "run" / "checkpoints" / "step-000000002"
    objects = trained(seed=0)
    progress = read_checkpoint(folder, {"number of images": 3}, **objects)
    assert (progress.step, progress.sums, progress.best_epoch) == (2, {"loss": 0.25}, None)
    assert torch.equal(objects["model"].weight, trained(seed=2)["model"].weight)


FILES = sorted(
    path.relative_to(BEFORE).as_posix()
    for pattern in ("*/*.arrow", "*/shard-*/*", "*/usearch/*", "run/checkpoints/*/*")
    for path in BEFORE.glob(pattern)
)


@each_row(
    ("name", "compared"),
    [
        ("features", "2 shards of features"),
        ("converted", "2 shards of features"),
        ("index", "2 shards and the graph"),
        ("run", "2 folders of"),
        ("run/checkpoints/step-000000001", "1 folder of"),
    ],
)
def test_what_is_whole_is_verified(before, capsys, name, compared):
    assert compared in prints(capsys, "inspect", before / name, "--verify")


@each_row("file", FILES)
def test_a_damaged_file_is_named_and_ends_with_2(before, capsys, file):
    """One byte differs, so the size does not tell."""
    content = bytearray((before / file).read_bytes())
    content[len(content) // 2] ^= 1
    (before / file).write_bytes(content)
    message = fails(capsys, "inspect", before / file.split("/")[0], "--verify")
    shard, name = Path(file).parts[-2:]
    assert shard in message and (name in message or name == "manifest.json")


def test_a_missing_file_is_named(before, capsys):
    (before / "features" / "shard-000-000001.arrow").unlink()
    assert "shard-000-000001.arrow" in fails(capsys, "inspect", before / "features", "--verify")
    (before / "run" / "checkpoints" / "step-000000002" / "manifest.json").unlink()
    assert "step-000000002" in fails(capsys, "inspect", before / "run", "--verify")


def test_what_has_no_checksums_cannot_be_verified(tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "file.json").write_text(json.dumps({}))
    for name in ("photos", "file.json", "nothing"):
        assert name in fails(capsys, "inspect", tmp_path / name, "--verify")
