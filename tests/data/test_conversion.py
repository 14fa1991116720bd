"""Conversion: its output, how it resumes, and its errors."""

import json
import os

import numpy as np
import pytest
from datasets import load_from_disk

from hf_ngsan.data import DataError
from hf_ngsan.data import conversion as module
from hf_ngsan.data.conversion import convert_features
from tests.data.facts import fails_naming
from tests.data.formats.files import features_of, tsv_line, write_pth, write_tsv, write_vatex
from tests.extraction.tiny import files_of
from tests.tables import each_row

IDS = range(20, 31)


@pytest.fixture
def regions(tmp_path):
    """A file with eleven images, the fifth of which is broken."""
    changes = [{"image_w": 0} if image_id == 24 else {} for image_id in IDS]
    lines = [tsv_line(12, image_id=image_id, **change) for image_id, change in zip(IDS, changes, strict=True)]
    return write_tsv(tmp_path / "regions.tsv", lines)


def convert(path, output, **options):
    return convert_features([path], output, **{"images_per_shard": 3, "skip_errors": True, **options})


def test_features_are_stored_as_float16_in_shards_with_checksums(regions, tmp_path):
    result = convert(regions, tmp_path / "out")
    assert (result.num_rows, result.num_new, result.feature_size, result.num_regions) == (10, 10, 6, (5, 5))
    rows = load_from_disk(str(tmp_path / "out"))
    assert rows["image_id"][:] == [image_id for image_id in IDS if image_id != 24]
    assert rows.features["visual_features"].feature.feature.dtype == "float16"
    features = np.float16(rows.with_format("numpy")[4]["visual_features"])
    np.testing.assert_array_equal(features, features_of(12).astype(np.float16))
    records = [json.loads(file.read_text()) for file in sorted((tmp_path / "out" / "records").iterdir())]
    assert [record["num_rows"] for record in records] == [3, 2, 3, 2]
    assert [record["end"][0] for record in records] == [0, 0, 0, 0]
    assert not list(tmp_path.rglob(".incomplete-*"))


@each_row("make", [write_pth, write_vatex])
def test_it_resumes_between_and_within_inputs(make, tmp_path, monkeypatch):
    inputs = [make(tmp_path / "first"), write_vatex(tmp_path / "second")]
    options = {"images_per_shard": 1, "grid_size": (1, 1)}
    if make is write_pth:  # images with and without boxes cannot be mixed
        with fails_naming("second", "boxes"):
            convert_features(inputs, tmp_path / "out", **options)
        inputs = inputs[:1]
        assert (tmp_path / ".incomplete-out").exists()
    convert_features(inputs, tmp_path / "straight", **options)
    write, shards = module.ShardWriter.commit, []

    def commit(self, *arguments, **keywords):
        write(self, *arguments, **keywords)
        shards.append(self.file)
        if len(shards) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module.ShardWriter, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            convert_features(inputs, tmp_path / "out", **options)
    result = convert_features(inputs, tmp_path / "out", **options)
    assert 0 < result.num_new == result.num_rows - 2
    assert files_of(tmp_path / "out") == files_of(tmp_path / "straight")


def test_a_shard_that_has_changed_is_not_built_upon(regions, tmp_path):
    with pytest.raises(DataError):
        convert(regions, tmp_path / "out", skip_errors=False)
    [shard] = (tmp_path / ".incomplete-out").glob("shard-*.arrow")
    shard.write_bytes(shard.read_bytes()[::-1])
    os.utime(shard, ns=(1, 1))
    with fails_naming(shard.name):
        convert(regions, tmp_path / "out")


def test_no_folder_that_holds_something_is_touched(regions, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        convert(regions, tmp_path / "full")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert convert(regions, tmp_path / "empty").num_rows == 10


def test_numbers_beyond_float16_need_float32(tmp_path):
    path = write_tsv(tmp_path / "large.tsv", [tsv_line(12, features=features_of(12) * np.float32(1e5))])
    with fails_naming("line 1", "float16", "float32"):
        convert(path, tmp_path / "out", skip_errors=False)
    convert(path, tmp_path / "out", dtype="float32")
    row = load_from_disk(str(tmp_path / "out")).with_format("numpy")[0]
    np.testing.assert_array_equal(row["visual_features"], features_of(12) * np.float32(1e5))
