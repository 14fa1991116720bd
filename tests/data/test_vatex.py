"""VATEX's videos: captions in both languages, features, and missing or broken files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hf_ngsan.data import load_data
from tests.data.facts import fails_naming
from tests.data.formats.files import VIDEOS as LENGTHS
from tests.data.formats.files import frames_of, write_vatex
from tests.tables import each_row

VIDEOS = list(LENGTHS)
REAL = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent"), "data", "feature_formats", "vatex_i3d")


def write(folder: Path, videos=VIDEOS, name: str = "vatex_validation_v1.0.json") -> str:
    """Writes features and captions of videos; returns the spec."""
    if not (folder / "val").exists():
        write_vatex(folder / "val")
    chinese = ["他用iPhone 6拍照。"]
    captions = [{"videoID": video, "enCap": [f"A man {n}."], "chCap": chinese} for n, video in enumerate(videos)]
    (folder / name).write_text(json.dumps(captions), encoding="utf-8")
    return f"vatex:{folder}"


@each_row("name", ["vatex_validation_v1.0.json", "vatex_val.json"])
def test_videos_are_rows_of_frames_without_boxes(tmp_path, name):
    rows = load_data(write(tmp_path, name=name), "validation")
    assert rows["file_name"][:] == VIDEOS and rows["image_id"][:] == list(range(len(VIDEOS)))
    assert rows.column_names == ["image_id", "visual_features", "captions", "file_name"]
    for row, video in zip(rows, VIDEOS, strict=True):
        np.testing.assert_array_equal(row["visual_features"], frames_of(video).astype(np.float16).astype(np.float32))
    assert rows[1]["captions"] == ["A man 1."]


def test_chinese_captions_are_split_into_characters(tmp_path):
    rows = load_data(f"{write(tmp_path)},language=zh", "val")
    assert rows[0]["captions"] == ["他 用 iPhone 6 拍 照 。"]
    with fails_naming("'fr'"):
        load_data(f"{write(tmp_path)},language=fr", "val")


def test_videos_without_features_are_left_out_counted_and_named(tmp_path):
    spec = write(tmp_path, ["absent_1", *VIDEOS, "absent_2"])
    with pytest.warns(UserWarning, match=f"2 of {len(VIDEOS) + 2} .*absent_1, absent_2"):
        rows = load_data(spec, "validation")
    assert rows["file_name"][:] == VIDEOS and rows["image_id"][0] == 1
    with fails_naming("1 videos"):
        load_data(write(tmp_path, ["absent"]), "validation")
    file = tmp_path / "vatex_validation_v1.0.json"
    file.write_text(json.dumps([{"videoID": VIDEOS[0], "enCap": [""]}]))
    with fails_naming(file, "enCap"):
        load_data(spec, "validation")
    write(tmp_path, name="vatex_val.json")
    for split in ("validation", "test"):
        with fails_naming(f"'{split}'", "vatex_val.json", file.name):
            load_data(spec, split)


@each_row(
    ("broken", "named"),
    [(np.zeros((3, 4, 5), np.float32), "(3, 4, 5)"), (np.full((1, 3, 6), np.nan, np.float32), "nan"), (None, "read")],
)
def test_broken_features_are_refused_by_name(tmp_path, broken, named):
    spec, file = write(tmp_path), tmp_path / "val" / f"{VIDEOS[1]}.npy"
    if broken is None:
        file.write_bytes(file.read_bytes()[:100])
    else:
        np.save(file, broken)
    with fails_naming(VIDEOS[1], named):
        load_data(spec, "validation")


@pytest.mark.skipif(not REAL.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/feature_formats")
@each_row(("language", "beginning"), [("en", "A man is juggling"), ("zh", "一 个 男 人")])
def test_real_layout(language, beginning):
    rows = load_data(f"vatex:{REAL},language={language}", "validation")
    assert len(rows) == 5 and {row["visual_features"].shape[1] for row in rows} == {1024}
    assert {len(row["captions"]) for row in rows} == {10}
    assert rows[0]["captions"][0].startswith(beginning)
