"""Whoever reads tar files of WebDataset - convert, inspect, a dataset of images, a stream - reads the same samples."""

import json
import tarfile

import pytest
from datasets import load_from_disk

from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.conversion import convert_features
from hf_ngsan.data.inspection import inspect_data
from tests.data.formats.test_image_formats import link, members_of, photo, write_tar

JPEG, PNG = photo(7, "JPEG"), photo(12)


def in_json(document):
    return json.dumps(document).encode()


def jpeg(key, caption="a"):
    return {f"{key}.jpg": JPEG, f"{key}.txt": caption.encode()}


A_AND_B = [("a",), ("b",)]
SAMPLES = {
    "PNG after JPEG": ({"0.tar": jpeg(1), "1.tar": {"2.png": PNG, "2.txt": b"b"}}, A_AND_B),
    "JSON after text": ({"0.tar": jpeg(1), "1.tar": {"2.jpg": JPEG, "2.json": in_json({"caption": "b"})}}, A_AND_B),
    "text after JSON": ({"0.tar": {"2.jpg": JPEG, "2.json": in_json({"text": ["a"]})}, "1.tar": jpeg(1, "b")}, A_AND_B),
    "a JSON of captions alone": ({"0.tar": {"1.jpg": JPEG, "1.json": in_json(["a", "b"])}}, [("a", "b")]),
    "a JSON of one caption": ({"0.tar": {"1.jpg": JPEG, "1.json": in_json("a")}}, [("a",)]),
    "a JSON of something else": ({"0.tar": {"1.jpg": JPEG, "1.json": in_json([{"id": 3}])}}, [()]),
    "an empty text beside a JSON": ({"0.tar": {**jpeg(1, " "), "1.json": in_json({"caption": "a"})}}, [("a",)]),
    "null before the key": ({"0.tar": {"1.jpg": JPEG, "1.json": in_json({"captions": None, "text": "a"})}}, [("a",)]),
    "upper case": ({"0.tar": {"1.JPG": JPEG, "1.TXT": b"a"}, "1.tar": {"2.Jpg": JPEG, "2.Json": b'["b"]'}}, A_AND_B),
    "captions behind all images": ({"0.tar": {"1.jpg": JPEG, "2.jpg": JPEG, "2.txt": b"b", "1.txt": b"a"}}, A_AND_B),
    "equal keys in two shards": ({"0.tar": jpeg(1), "1.tar": jpeg(1, "b")}, A_AND_B),
    "equal keys in two folders": ({"0.tar": jpeg("cats/0001") | jpeg("dogs/0001", "b")}, A_AND_B),
    "equal numbers": ({"0.tar": jpeg("1") | jpeg("01", "b")}, A_AND_B),
    "equal names that are no numbers": ({"0.tar": jpeg("cat"), "1.tar": jpeg("cat", "b")}, A_AND_B),
    "numbers and names": ({"0.tar": jpeg("1"), "1.tar": jpeg("cat", "b")}, A_AND_B),
    "separators": ({"0.tar": jpeg(1, "a\u2028b\x0bc\x0cd\x85e\r\nf\rg\n\nh")}, [("a b c d e", "f", "g", "h")]),
    "words": ({"0.tar": jpeg(1, "None") | jpeg(2, "NA\nnan") | jpeg(3, "42")}, [("None",), ("NA", "nan"), ("42",)]),
    "no captions": ({"0.tar": {"1.jpg": JPEG, "1.json": b"{}"}, "1.tar": {"2.jpg": JPEG}}, [(), ()]),
    "other files beside the shards": ({"0.tar": jpeg(1), "0_stats.json": None, "1_stats.json": None}, [("a",)]),
    "attributes of macOS": ({"0.tar": {"._1.jpg": b"x", **jpeg(1)}}, [("a",)]),
}
FAULTS = {
    "two images": {"1.jpg": JPEG, "1.png": PNG, "1.txt": b"a"},
    "no image": {"1.txt": b"a"},
    "no JSON": {"1.jpg": JPEG, "1.json": b"{"},
    "numbers": {"1.jpg": JPEG, "1.json": b'{"caption": [1]}'},
    "a link": {"1.jpg": link("1.jpg", tarfile.SYMTYPE), "1.txt": b"a"},
    "repeated": {**jpeg(1), "1.JPG": JPEG},
}


def write_shards(folder, shards):
    for name, members in shards.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}") if members is None else write_tar(folder / name, members)
    return folder


def content_of(rows):
    return [(tuple(row.get("captions") or ()), row["image"].tobytes()) for row in rows]


def test_all_roads_read_the_same_samples(tmp_path, cache):
    for name, (shards, captions) in SAMPLES.items():
        folder, output = write_shards(tmp_path / name, shards), tmp_path / f"{name} converted"
        convert_features([folder], output)
        converted = content_of(load_from_disk(str(output)))
        assert [found for found, _ in converted] == captions, name
        findings = inspect_data(folder)
        assert (findings.num_images, findings.num_problems) == (len(captions), 0), name
        for keys in ("", ",streaming=true"):
            assert content_of(load_data(f"images:{folder}{keys}", "train")) == converted, (name, keys)


def test_all_roads_refuse_a_sample_with_the_same_sentence(tmp_path, cache):
    for name, members in FAULTS.items():
        folder = write_shards(tmp_path / name, {"0.tar": members_of(7), "1.tar": members})
        problem = inspect_data(folder).problem
        assert "1.tar" in problem, name
        for road in (
            lambda folder: convert_features([folder], folder.parent / "out"),
            lambda folder: load_data(f"images:{folder}", "train"),
            lambda folder: load_data(f"images:{folder},streaming=true", "train"),
        ):
            with pytest.raises(DataError) as error:
                road(folder)
            assert str(error.value).startswith(problem.rstrip(".")), name


def test_images_without_captions_are_counted_or_refused_and_those_with_captions_keep_theirs(tmp_path, cache):
    first = {"0.jpg": JPEG}
    for name, members in {
        "no text": first,
        "null": {**first, "0.json": b'{"caption": null}'},
        "no key": {**first, "0.json": b'{"width": 4}'},
        "empty": {**first, "0.txt": b"\n"},
    }.items():
        folder = write_shards(tmp_path / name, {"0.tar": {**members, **jpeg(1)}, "1.tar": jpeg(2, "b")})
        with pytest.raises(DataError, match="captions"):
            convert_features([folder], tmp_path / f"{name} converted")
        findings = inspect_data(folder)
        assert (findings.num_images, findings.num_problems) == (2, 1), name
        result = convert_features([folder], tmp_path / f"{name} converted", skip_errors=True)
        assert [entry["image_id"] for entry in result.skipped] == ["0"], name
        converted = load_from_disk(str(tmp_path / f"{name} converted"))
        assert [row["captions"] for row in converted] == [["a"], ["b"]], name
        for keys in ("", ",streaming=true"):
            with pytest.warns(UserWarning, match="1 of 3"):
                assert load_data(f"images:{folder}{keys}", "train")["captions"][:] == [["a"], ["b"]], name


def test_a_compressed_file_is_named(tmp_path, cache):
    write_shards(tmp_path / "data", {"0.tar": jpeg(1)})
    (tmp_path / "data" / "1.tar.gz").write_bytes(b"")
    for road in (
        lambda: convert_features([tmp_path / "data"], tmp_path / "out"),
        lambda: inspect_data(tmp_path / "data"),
        lambda: load_data(f"images:{tmp_path / 'data'}", "train"),
        lambda: load_data(f"images:{tmp_path / 'data'},streaming=true", "train"),
        lambda: load_data(f"images:{tmp_path / 'data' / '1.tar.gz'},streaming=true", "train"),
    ):
        with pytest.raises(DataError, match=r"1\.tar\.gz"):
            road()
