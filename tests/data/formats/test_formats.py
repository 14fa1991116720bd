"""Every format is recognised and read correctly; errors name the file, the record and the problem."""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

from hf_ngsan.data import FeatureFormat, VisualRecord, load_data, register_format
from hf_ngsan.data.contract import cell_boxes
from hf_ngsan.data.conversion import convert_features
from hf_ngsan.data.formats import FEATURE_FORMATS, open_sources, recognise
from tests.data.facts import fails_naming
from tests.data.formats.files import (
    DIMENSION,
    GRID,
    REGIONS,
    SIZES,
    VIDEOS,
    boxes_of,
    features_of,
    frames_of,
    map_of,
    tsv_line,
    vqa_arrays,
    write_cocobu,
    write_grid_hdf5,
    write_hdf5,
    write_m2,
    write_maps,
    write_pth,
    write_tsv,
    write_vatex,
    write_vqa,
)
from tests.tables import each_row


def rows_of(path, output, **options):
    import datasets

    convert_features([path], output, **{"dtype": "float32", **options})
    return {row["image_id"]: row for row in datasets.load_from_disk(str(output)).with_format("numpy")}


REGION_FORMATS = {
    "bottom-up-tsv": lambda path: write_tsv(path / "regions.tsv"),
    "cocobu": write_cocobu,
    "m2-hdf5": lambda path: write_m2(path / "regions.hdf5"),
    "vqa-npz": lambda path: write_vqa(path / "val2014"),
    "vqa-npz-rows": lambda path: write_vqa(path / "rows", transposed=False),
}
GRID_FORMATS = {"grid-pth": write_pth, "grid-npy": lambda path: write_maps(path / "maps")}


@each_row("name", REGION_FORMATS)
def test_regions_arrive_as_they_are(name, tmp_path):
    path = REGION_FORMATS[name](tmp_path)
    assert recognise(path).name == name.removesuffix("-rows")
    rows = rows_of(path, tmp_path / "out")
    assert rows.keys() == SIZES.keys()
    for image_id, (width, height) in SIZES.items():
        np.testing.assert_array_equal(rows[image_id]["visual_features"], features_of(image_id))
        expected = (boxes_of(image_id) / np.tile((width, height), 2)).astype(np.float32)
        np.testing.assert_allclose(rows[image_id]["visual_boxes"], expected, atol=1e-6)
        if name in ("cocobu", "m2-hdf5"):
            assert "width" not in rows[image_id]
        else:
            assert (rows[image_id]["width"], rows[image_id]["height"]) == (width, height)


@each_row("name", GRID_FORMATS)
def test_cells_of_feature_maps_arrive_row_by_row(name, tmp_path):
    path = GRID_FORMATS[name](tmp_path)
    assert recognise(path).name == name
    rows = rows_of(path, tmp_path / "out")
    for image_id in SIZES:
        full = map_of(image_id) if name == "grid-pth" else map_of(image_id).astype(np.float16).astype(np.float32)
        for cell, (row, column) in enumerate(np.ndindex(GRID)):
            np.testing.assert_array_equal(rows[image_id]["visual_features"][cell], full[:, row, column])
            box = [column / 2, row / 3, (column + 1) / 2, (row + 1) / 3]
            np.testing.assert_allclose(rows[image_id]["visual_boxes"][cell], box, atol=1e-6)


def test_square_grids_of_hdf5(tmp_path):
    path = write_grid_hdf5(tmp_path / "grids.h5")
    assert recognise(path).name == "grid-hdf5"
    rows = rows_of(path, tmp_path / "out")
    for image_id in SIZES:
        np.testing.assert_array_equal(rows[image_id]["visual_features"], map_of(image_id).reshape(DIMENSION, -1).T[:4])
        np.testing.assert_array_equal(rows[image_id]["visual_boxes"], cell_boxes(2, 2))


def test_grids_are_pooled_by_means(tmp_path):
    rows = rows_of(write_pth(tmp_path / "maps"), tmp_path / "out", grid_size=(1, 2))
    for image_id in SIZES:
        np.testing.assert_allclose(rows[image_id]["visual_features"], map_of(image_id).mean(1).T, rtol=1e-6)
        np.testing.assert_array_equal(rows[image_id]["visual_boxes"], cell_boxes(1, 2))


def test_grids_of_cocobu_are_cells(tmp_path):
    (tmp_path / "mine_att").mkdir()
    cells = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.savez(tmp_path / "mine_att" / "7.npz", feat=cells)
    convert_features([tmp_path / "mine_att"], tmp_path / "out")
    [row] = load_data(f"features:{tmp_path / 'out'}", "train")
    np.testing.assert_array_equal(row["visual_features"], cells.reshape(6, 4))
    np.testing.assert_allclose(row["visual_boxes"][1], [1 / 3, 0, 2 / 3, 0.5], rtol=1e-6)


def test_videos_are_numbered_by_their_names_in_order(tmp_path):
    path = write_vatex(tmp_path / "val")
    assert recognise(path).name == "vatex"
    rows = rows_of(path, tmp_path / "out")
    assert {image_id: row["file_name"] for image_id, row in rows.items()} == dict(enumerate(sorted(VIDEOS)))
    for row in rows.values():
        np.testing.assert_array_equal(row["visual_features"], frames_of(row["file_name"]))
        assert "visual_boxes" not in row


def test_a_folder_of_several_formats_must_say_which(tmp_path):
    write_pth(tmp_path / "both")
    write_vatex(tmp_path / "both" / "val")
    with fails_naming("grid-pth", "vatex", "--from"):
        recognise(tmp_path / "both")
    assert open_sources(tmp_path / "both", "vatex")[0].total == len(VIDEOS)
    with fails_naming("unknown", *FEATURE_FORMATS):
        open_sources(tmp_path / "both", "unknown")
    with fails_naming(tmp_path / "both" / "val", "grid-pth"):
        open_sources(tmp_path / "both" / "val", "grid-pth")
    (tmp_path / "note.txt").write_text("nothing")
    for path in (tmp_path / "note.txt", tmp_path / "absent"):
        with fails_naming(path):
            open_sources(path)
    with fails_naming("note.txt", *FEATURE_FORMATS):
        recognise(tmp_path / "note.txt")


def test_a_format_of_the_users_is_recognised(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_ngsan.data.formats.FEATURE_FORMATS", dict(FEATURE_FORMATS))
    text = FeatureFormat(
        "text", "numbers in ID.numbers", (".numbers",), lambda path: VisualRecord(np.loadtxt(path, ndmin=2))
    )
    register_format(text)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "7.numbers").write_text("1 2\n3 4")
    assert rows_of(tmp_path / "mine", tmp_path / "out")[7]["visual_features"].tolist() == [[1, 2], [3, 4]]
    with fails_naming("text"):
        register_format(FeatureFormat("text", "", (".txt",), write_tsv))


def other(**changes):
    return [tsv_line(7), tsv_line(12, **changes), tsv_line(391895)]


def changed_boxes(place, values):
    boxes = boxes_of(12)
    boxes[place] = values
    return boxes


TSV_FAULTS = {
    "too many boxes": (other(num_boxes=REGIONS[12] + 1), ["line 2", 12, REGIONS[12] + 1]),
    "illegal base64": (other(boxes="AAAA*AAA"), ["line 2"]),
    "no boxes": (other(num_boxes=0), ["line 2", "num_boxes is 0"]),
    "no size": (other(image_w=0), ["line 2", "0 x 60"]),
    "twice": (other(image_id=7), ["line 2", "image 7"]),
    "no number": (other(image_id=-3), ["line 2", "-3"]),
    "two fields": ([tsv_line(7), b"12\t30", tsv_line(391895)], ["line 2", "2 fields"]),
    "NaN": (other(features=features_of(12) * np.float32([1, 1, np.nan, 1, 1, 1])), ["line 2", 12]),
    "dimension": (other(features=features_of(12)[:, :4].copy()), ["line 2", "dimension 4", "have 6"]),
    "point": (other(boxes=changed_boxes(3, [5, 5, 5, 5])), ["line 2", "visual_boxes[3]", "area"]),
    "beyond": (other(boxes=changed_boxes(4, [3, 5, 33, 9])), ["line 2", "visual_boxes[4]", "30 x 60"]),
}


@each_row("fault", TSV_FAULTS)
def test_a_broken_line_is_named_and_nothing_is_left_or_it_is_skipped(fault, tmp_path):
    lines, facts = TSV_FAULTS[fault]
    path = write_tsv(tmp_path / "broken.tsv", lines)
    with fails_naming("broken.tsv", *facts):
        convert_features([path], tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken.tsv"]
    result = convert_features([path], tmp_path / "out", skip_errors=True)
    [skipped] = json.loads((tmp_path / "out" / "skipped.json").read_text())
    assert result.num_rows == len(lines) - 1 and skipped == result.skipped[0]
    assert "line 2" in skipped["file_name"] and str(facts[-1]) in skipped["reason"]


def test_hdf5_reads_parts_that_are_not_stored_as_zeros_and_we_do_not(tmp_path):
    for chunks, part in ((None, None), ((8, 1000), None), ((8, 1000), bytes(32_000))):
        with h5py.File(tmp_path / "0.hdf5", "w") as file:
            array = file.create_dataset("7_features", (64, 2000), "<f4", chunks=chunks, fillvalue=1)
            if part:
                array.id.write_direct_chunk((8, 0), part)
        with fails_naming("0.hdf5", "7_features"):
            convert_features([tmp_path / "0.hdf5"], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_hdf5_files_are_read_no_further_than_themselves(tmp_path):
    write_m2(tmp_path / "other.hdf5")
    with h5py.File(tmp_path / "links.hdf5", "w") as file:
        file["12_boxes"] = boxes_of(12)
        file["12_features"] = h5py.ExternalLink("other.hdf5", "12_features")
    with fails_naming("links.hdf5", "12_features"):
        convert_features([tmp_path / "links.hdf5"], tmp_path / "out")
    for number, facts in ((5, ["12_grids", "5 cells"]), (0, ["12", "(0, 3)"])):
        cells = {"7_grids": np.ones((4, 3), np.float32), "12_grids": np.ones((number, 3), np.float32)}
        with fails_naming(*facts):
            convert_features([write_hdf5(tmp_path / "grids.hdf5", cells)], tmp_path / "out")


def test_one_damaged_file_of_a_folder_does_not_hide_its_format(tmp_path):
    path = write_vqa(tmp_path / "val2014")
    [first, second, _] = sorted(path.iterdir())
    first.write_bytes(b"damaged")
    np.savez(second, **{**vqa_arrays(12), "bbox": boxes_of(12)[:2]})
    result = convert_features([path], tmp_path / "out", skip_errors=True)
    skipped = [Path(entry["file_name"]).name for entry in result.skipped]
    assert result.num_rows == 1 and skipped == [first.name, second.name]
    assert "(2, 4)" in result.skipped[1]["reason"]


def test_hdf5_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "7.hdf5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with fails_naming("7.hdf5", "hf-ngsan[features]"):
        convert_features([tmp_path / "7.hdf5"], tmp_path / "out")
