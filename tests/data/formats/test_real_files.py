"""Intact and broken files in the layouts of public releases, from the folder HF_NGSAN_TEST_DATA."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from hf_ngsan.data.conversion import convert_features
from tests.data.facts import fails_naming
from tests.tables import each_row

FOLDER = Path(os.environ.get("HF_NGSAN_TEST_DATA", ""), "data", "feature_formats")
HAS_FILES = "HF_NGSAN_TEST_DATA" in os.environ and FOLDER.is_dir()
pytestmark = pytest.mark.skipif(not HAS_FILES, reason="HF_NGSAN_TEST_DATA names no folder with data/feature_formats")
EXPECTED = json.loads((FOLDER / "expected.json").read_text()) if HAS_FILES else {}
FEATURES = ("bottom_up_tsv", "cocobu", "m2_hdf5", "grid_hdf5", "grid_pth", "vqa_npz", "vatex_i3d")
BROKEN = json.loads((FOLDER / "broken" / "manifest.json").read_text()) if HAS_FILES else []
INCOMPLETE = "m2_missing_id.hdf5"
"""Only a list of images shows what is wrong with it."""
BROKEN_FEATURES = [entry for entry in BROKEN if entry["format"] in FEATURES and entry["file"] != INCOMPLETE]


def converted(path, output, **options):
    import datasets

    convert_features([FOLDER / path], output, dtype="float32", **options)
    return datasets.load_from_disk(str(output)).with_format("numpy")


def checksum(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@each_row(
    ("path", "key", "number"),
    [
        ("bottom_up_tsv/karpathy_test_resnet101_faster_rcnn_genome.tsv", "bottom_up", 7),
        ("bottom_up_tsv/trainval_resnet101_faster_rcnn_genome_36.tsv", "bottom_up_36", 2),
        ("cocobu", "bottom_up", 7),
        ("m2_hdf5", "bottom_up", 7),
        ("vqa_npz/val2014", "bottom_up", 7),
        ("vqa_npz/bottom_up_attention_pytorch", "bottom_up", 2),
    ],
)
def test_regions(path, key, number, tmp_path):
    rows = converted(path, tmp_path / "out")
    assert len(rows) == number
    for row in rows:
        expected = EXPECTED[key][str(row["image_id"])]
        size = expected["image_w"], expected["image_h"]
        assert row["visual_features"].shape == (expected["num_boxes"], expected["dim"])
        assert checksum(row["visual_features"]) == expected["features_sha"]
        pixels = np.round(row["visual_boxes"].astype(np.float64) * np.tile(size, 2), 3)
        if "first_box" in expected:
            np.testing.assert_allclose(pixels[0], expected["first_box"], atol=1e-3)
        if "width" in row:
            assert (row["width"], row["height"]) == size


@each_row(
    ("path", "key", "options"),
    [
        ("grid_hdf5/X101_grid_feats_coco_trainval.hdf5", "hdf5", {}),
        ("grid_hdf5/small_dim_trainval.hdf5", "small", {}),
        ("grid_pth", "small", {"grid_size": (7, 7)}),
        ("grid_pth", "pth", {}),
    ],
)
def test_grids(path, key, options, tmp_path):
    rows = converted(path, tmp_path / "out", **options)
    assert len(rows) == 5
    for row in rows:
        features = row["visual_features"]
        expected = EXPECTED["grid"][str(row["image_id"])][key]
        assert checksum(features.T if key == "pth" else features) == expected["sha"]


@pytest.mark.slow
@pytest.mark.parametrize("entry", BROKEN_FEATURES)
def test_every_broken_file_is_named_and_leaves_nothing(entry, tmp_path):
    file = FOLDER / "broken" / entry["file"]
    with fails_naming(file.stem, *([entry["where"]] if isinstance(entry.get("where"), int) else [])):
        convert_features([file], tmp_path / "out")
    assert not list(tmp_path.iterdir())
