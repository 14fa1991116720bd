"""`hf-ngsan inspect` compares every file of features, an index and a training run with its checksum."""

import shutil
from pathlib import Path

import pytest

from tests.commands.running import fails, prints
from tests.extraction.tiny import extract, write_photos
from tests.retrieval.test_index_folder import with_everything
from tests.training.test_checkpoints import trained, write


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    extract(write_photos(folder / "photos", 5), folder / "features", split="test")
    with_everything(folder / "index")
    for step in (1, 2):
        write(folder / "run" / "checkpoints", step, trained(seed=step))
    (folder / "run" / "training_config.yaml").touch()
    return folder


def test_what_is_whole_is_verified(written, capsys):
    for name, kind in (("features", "saved dataset"), ("index", "search index"), ("run", "training run")):
        assert kind in prints(capsys, "inspect", written / name), name


def test_a_damaged_file_is_named_and_ends_with_2(written, tmp_path, capsys):
    """One byte differs, so the size is the same."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    patterns = ("features/*.arrow", "index/shard-*/*", "run/checkpoints/*/*")
    files = [file for pattern in patterns for file in sorted(tmp_path.glob(pattern))]
    assert len(files) > 12
    for file in files:
        full = file.read_bytes()
        content = bytearray(full)
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        message = fails(capsys, "inspect", tmp_path / file.relative_to(tmp_path).parts[0])
        assert file.parent.name in message and (file.name in message or file.name == "manifest.json"), file
        file.write_bytes(full)
