"""An extraction that is killed at any moment and run again gives the same result as an uninterrupted one."""

import pytest
from datasets import load_from_disk

from tests.tables import each_row
from tests.training.test_crash import KilledError, Reaper

from .tiny import extract as extract_tiny
from .tiny import files_of, write_photos


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


def test_a_shard_that_was_cut_is_extracted_again(photos, straight, tmp_path):
    output = tmp_path / "features"
    extract_tiny(photos, output, skip_errors=True)
    shard = sorted(output.glob("shard-*.arrow"))[1]
    shard.write_bytes(shard.read_bytes()[:1000])
    extract_tiny(photos, output, skip_errors=True)
    assert files_of(output) == straight[0]
