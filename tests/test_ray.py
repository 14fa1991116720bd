"""The scripts of examples/ray and the code of docs/scale.md, on a cluster of this machine; needs the extra `ray`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset

from tests.models.tiny_photos import PHOTOS
from tests.test_documents import blocks

pytest.importorskip("ray", reason='Ray is not installed; pip install "hf-ngsan[ray]"')
ROOT = Path(__file__).parents[1]
BROKEN = "broken.png"


@pytest.fixture
def folder(captioner, dual_encoder, vision, photographs, tmp_path) -> Path:
    """A folder with photographs, one of them broken, a captioner, a vision encoder and a dual encoder."""
    shutil.copytree(photographs[0].parent, tmp_path / "photos")
    (tmp_path / "photos" / BROKEN).write_bytes(b"no image")
    for name, model in (("captioner", captioner), ("dual_encoder", dual_encoder), ("vision", vision)):
        shutil.copytree(model, tmp_path / name)
    return tmp_path


def run(folder: Path, *arguments: object) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # Otherwise Ray waits 30 s for its server, which is not always enough if other tests keep the machine busy.
    environment = {**os.environ, "PYTHONPATH": path, "RAY_gcs_server_port_wait_time_s": "90"}
    subprocess.run([sys.executable, *map(str, arguments)], cwd=folder, env=environment, check=True)


def rows_of(folder: Path) -> dict[str, dict]:
    rows = Dataset.from_parquet([str(file) for file in folder.glob("*.parquet")])
    assert len({row["path"] for row in rows}) == len(rows)
    assert [Path(row["path"]).name for row in rows if row["error"]] == [BROKEN]
    return {Path(row["path"]).name: row for row in rows}


@pytest.mark.slow
def test_captions_are_written_once_and_new_photographs_are_added(folder):
    command = [ROOT / "examples" / "ray" / "caption.py", "photos", "captions", "--model", "captioner"]
    run(folder, *command)
    files = {file.name: file.read_bytes() for file in (folder / "captions").iterdir()}
    first = rows_of(folder / "captions")
    assert len(first) == len(PHOTOS) + 1
    assert all(row["caption"] for name, row in first.items() if name != BROKEN)
    PHOTOS[0].save(folder / "photos" / "new.png")
    run(folder, *command)
    assert {name: (folder / "captions" / name).read_bytes() for name in files} == files
    assert rows_of(folder / "captions").keys() - first.keys() == {"new.png"}


@pytest.mark.slow
def test_features_and_embeddings_are_written(folder):
    run(folder, ROOT / "examples" / "ray" / "extract.py", "photos", "parts", "--backbone", "vision")
    actual = rows_of(folder / "parts")
    assert len(actual) == len(PHOTOS) + 1
    assert all(len(row["visual_features"]) == 4 for name, row in actual.items() if name != BROKEN)
    run(folder, ROOT / "examples" / "ray" / "embed.py", "photos", "embeddings", "--model", "dual_encoder")
    embedded = rows_of(folder / "embeddings")
    assert {row["embedding"] is None for name, row in embedded.items() if name != BROKEN} == {False}


@pytest.mark.slow
def test_the_code_of_the_page_captions_a_folder(folder):
    [code] = blocks(ROOT / "docs" / "scale.md", "python")
    run(folder, "-c", code)
    assert all(row["caption"] for name, row in rows_of(folder / "captions").items() if name != BROKEN)
