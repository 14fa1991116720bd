"""Several processes write what one writes."""

import os
import subprocess
import sys

import pytest

from .tiny import extract, files_of, tiny_processor, tiny_vision, write_photos

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run_two(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*TORCHRUN, "-m", "hf_ngsan.cli", "extract", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def vision(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vision")
    tiny_vision().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_what_one_process_finds_wrong_is_one_sentence(vision, tmp_path):
    photos = write_photos(tmp_path / "photos", 13)
    (photos / "000013.png").write_bytes(b"")
    arguments = ["--images", photos, "--batch-size", "2", "--num-workers", "0", "--output", tmp_path / "out"]
    command = [sys.executable, "-m", "hf_ngsan.cli", "extract", *arguments, "--backbone", vision]
    command = [*map(str, command), "--num-processes", "2"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("hf-ngsan: error: ") and "000013.png" in line
    assert not (tmp_path / "out" / "state.json").exists()


@pytest.mark.slow
def test_two_processes_write_what_one_writes_also_after_a_kill(vision, tmp_path):
    photos = write_photos(tmp_path / "photos", 13)
    (photos / "000007.png").write_bytes(b"")
    extract(photos, tmp_path / "one", split="test", skip_errors=True)
    extract(photos, tmp_path / "two", split="test", skip_errors=True)
    expected = files_of(tmp_path / "one")
    for file in ("state.json", "shard-000-000001.arrow", "shard-000-000003.arrow"):  # as if both had been killed
        (tmp_path / "two" / file).unlink()
    arguments = ["--images", photos, "--backbone", vision, "--split", "test", "--batch-size", "2", "--num-workers", "0"]
    result = run_two(*arguments, "--skip-errors", "--output", tmp_path / "two")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("features of 12 images") == result.stdout.count("skipped: ") == 1
    assert "000007.png" in result.stdout
    assert files_of(tmp_path / "two") == expected
