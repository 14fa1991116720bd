"""An extraction that dies at any moment and is run again ends as one that did not."""

import os
import subprocess
import sys
import time

import pytest
from datasets import load_from_disk

from tests.tables import each_row
from tests.training.test_crash import KilledError, Reaper

from .tiny import extract as extract_tiny
from .tiny import files_of, tiny_processor, tiny_vision, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = write_photos(tmp_path_factory.mktemp("photos"), 11)
    (folder / "000004.png").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def straight(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("straight") / "features"
    with pytest.MonkeyPatch.context() as monkeypatch:
        reaper = Reaper(monkeypatch, output)
        extract_tiny(photos, output, skip_errors=True)
    return files_of(output), reaper.count


@each_row(("moment", "after"), [(0.0, False), (0.4, True), (0.7, False), (0.9, True), (1.0, False)])
def test_dying_at_a_file_operation(photos, straight, tmp_path, moment, after):
    files, num_operations = straight
    output = tmp_path / "features"
    with pytest.MonkeyPatch.context() as monkeypatch:
        Reaper(monkeypatch, output, fatal=1 + int(moment * (num_operations - 1)), after=after)
        with pytest.raises(KilledError):
            extract_tiny(photos, output, skip_errors=True)
    is_published = (output / "state.json").exists()
    if is_published:
        assert files_of(output) == files
    else:
        with pytest.raises(FileNotFoundError):
            load_from_disk(str(output))
    extract_tiny(photos, output, skip_errors=True)
    assert files_of(output) == files
    assert not list(output.rglob(".incomplete-*"))


def test_dying_while_images_are_added_leaves_the_old_data_set(photos, tmp_path):
    output, more = tmp_path / "features", write_photos(tmp_path / "more", 9, first=50)
    extract_tiny(photos, output, split="train", skip_errors=True)
    before = load_from_disk(str(output)).to_list()
    with pytest.MonkeyPatch.context() as monkeypatch:
        Reaper(monkeypatch, output, fatal=16)
        with pytest.raises(KilledError):
            extract_tiny(more, output, split="test")
    assert load_from_disk(str(output)).to_list() == before
    assert len(list(output.glob("shard-001-*.arrow"))) > 0
    extract_tiny(more, output, split="test")
    rows = load_from_disk(str(output)).to_list()
    assert rows[: len(before)] == before and [row["image_id"] for row in rows[len(before) :]] == list(range(50, 59))


@pytest.mark.slow
def test_kill_9(tmp_path):
    photos = write_photos(tmp_path / "photos", 40)
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    arguments = ["--images", photos, "--backbone", tmp_path / "vision", "--batch-size", "1", "--images-per-shard", "2"]
    command = [
        sys.executable,
        "-m",
        "hf_ngsan.cli",
        "extract",
        *map(str, arguments),
        "--output",
        str(tmp_path / "killed"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "--num-workers", "1"], env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(list((tmp_path / "killed" / "records").glob("shard-*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
    assert process.returncode == -9 and not (tmp_path / "killed" / "state.json").exists()
    for output in ("killed", "straight"):
        extract_tiny(photos, tmp_path / output, batch_size=1, images_per_shard=2)
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")
    assert len(load_from_disk(str(tmp_path / "killed"))) == 40


def test_a_shard_that_was_cut_is_extracted_again(photos, straight, tmp_path):
    output = tmp_path / "features"
    extract_tiny(photos, output, skip_errors=True)
    shard = sorted(output.glob("shard-*.arrow"))[1]
    shard.write_bytes(shard.read_bytes()[:1000])
    extract_tiny(photos, output, skip_errors=True)
    assert files_of(output) == straight[0]


@pytest.mark.slow
def test_two_processes_write_what_one_writes_also_after_a_kill(tmp_path):
    vision, photos = tmp_path / "vision", write_photos(tmp_path / "photos", 13)
    tiny_vision().save_pretrained(vision)
    tiny_processor().save_pretrained(vision)
    (photos / "000007.png").write_bytes(b"")
    extract_tiny(photos, tmp_path / "one", split="test", skip_errors=True)
    extract_tiny(photos, tmp_path / "two", split="test", skip_errors=True)
    expected = files_of(tmp_path / "one")
    for file in ("state.json", "shard-000-000001.arrow", "shard-000-000003.arrow"):  # as if both had been killed
        (tmp_path / "two" / file).unlink()
    arguments = ["--images", photos, "--backbone", vision, "--split", "test", "--batch-size", "2", "--num-workers", "0"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command += ["hf_ngsan.cli", "extract", *map(str, arguments), "--skip-errors", "--output", str(tmp_path / "two")]
    result = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("features of 12 images") == result.stdout.count("skipped: ") == 1
    assert "000007.png" in result.stdout
    assert files_of(tmp_path / "two") == expected
