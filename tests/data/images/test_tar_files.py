"""WebDataset's tar files, loaded, streamed and inspected: the same samples, and none is lost silently."""

import io
import json
import tarfile

import fsspec
import pytest
from PIL import Image

from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.images.tar_files import samples_of
from hf_ngsan.data.inspection import inspect_data
from tests.data.images.photos import encoded

JPEG, PNG = (encoded(Image.new("RGB", (4, 3), "red"), kind) for kind in ("JPEG", "PNG"))


def write_tar(path, members):
    """A tar file of contents, or of members that are not regular files."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = 0 if member is content else len(content)
            archive.addfile(member, None if member is content else io.BytesIO(content))
    return path


def link(name):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


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
    "two texts": ({"0.tar": {**jpeg(1, "a\na"), "1.caption": b"b\na"}}, [("a", "a", "b")]),
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
    "a link": {"1.jpg": link("1.jpg"), "1.txt": b"a"},
    "leads out": {"../1.jpg": JPEG},
    "repeated": {**jpeg(1), "1.JPG": JPEG},
}


def write_shards(folder, shards):
    folder.mkdir()
    for name, members in shards.items():
        (folder / name).write_text("{}") if members is None else write_tar(folder / name, members)
    return folder


def content_of(rows):
    return [(tuple(row.get("captions") or ()), row["image"].tobytes()) for row in rows]


def refuse(place, name):
    """Every reader rejects a folder or file and names the problem."""
    for road in (
        lambda: inspect_data(place),
        lambda: load_data(f"images:{place}", "train"),
        lambda: load_data(f"images:{place},streaming=true", "train"),
    ):
        with pytest.raises(DataError, match=name):
            road()


def test_all_roads_read_the_same_samples(tmp_path, cache):
    for name, (shards, captions) in SAMPLES.items():
        folder = write_shards(tmp_path / name, shards)
        loaded = content_of(load_data(f"images:{folder}", "train"))
        assert [texts for texts, _ in loaded] == captions, name
        assert content_of(load_data(f"images:{folder},streaming=true", "train")) == loaded, name
        findings = inspect_data(folder)
        assert (findings.num_images, findings.num_problems) == (len(captions), 0), name
    fsspec.filesystem("memory").pipe("/far.tar", write_tar(tmp_path / "far.tar", jpeg(1)).read_bytes())
    [sample] = samples_of(["memory://far.tar"])  # as from the Hub
    assert sample == {"image": {"bytes": JPEG, "path": "1.jpg"}, "captions": ["a"], "file_name": "1.jpg"}


def test_faults_of_a_sample_are_named(tmp_path, cache):
    for name, members in FAULTS.items():
        refuse(write_shards(tmp_path / name, {"0.tar": jpeg(7), "1.tar": members}), r"1\.tar")
    write_shards(tmp_path / "packed", {"0.tar": jpeg(1)})
    (tmp_path / "packed" / "1.tar.gz").write_bytes(b"")
    refuse(tmp_path / "packed", r"1\.tar\.gz")


def test_images_without_captions_are_counted(tmp_path, cache):
    first = {"0.jpg": JPEG}
    for name, members in {
        "no text": first,
        "null": {**first, "0.json": b'{"caption": null}'},
        "empty": {**first, "0.txt": b"\n"},
    }.items():
        folder = write_shards(tmp_path / name, {"0.tar": {**members, **jpeg(1)}, "1.tar": jpeg(2, "b")})
        for keys in ("", ",streaming=true"):
            with pytest.warns(UserWarning, match="1 of 3"):
                assert load_data(f"images:{folder}{keys}", "train")["captions"][:] == [["a"], ["b"]], name


def test_members_that_are_not_read_are_named(tmp_path, cache):
    members = jpeg(1) | {"1.json": in_json({"caption": "b"}), "1.en.txt": b"c"} | jpeg(2)
    folder = write_shards(tmp_path / "shards", {"0.tar": members, "1.tar": jpeg(3) | {"3.json": b"{}"}})
    for keys in ("", ",streaming=true"):
        with pytest.warns(UserWarning, match=r"KEY\.en\.txt, KEY\.json"):
            assert load_data(f"images:{folder}{keys}", "train")["captions"][:] == [["a"]] * 3


def test_no_member_is_lost_without_a_word(tmp_path, cache):
    content = write_tar(tmp_path / "whole.tar", jpeg(1) | jpeg(2)).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as archive:
        places = [member.offset for member in archive]
    backwards = bytearray(content)
    backwards[places[2] + 124 : places[2] + 136] = b"\xff" * 10 + b"\xfe\x00"  # a size of -512 bytes
    backwards[places[2] + 148 : places[2] + 156] = b" " * 8
    sum_of_header = sum(backwards[places[2] : places[2] + 512])
    backwards[places[2] + 148 : places[2] + 156] = b"%06o\0 " % sum_of_header
    for number, damaged in enumerate(
        (
            content + content,  # two in one
            content + bytes(3 * 2**20) + content,
            content[: places[2]] + bytes(2048) + content[places[2] + 2048 :],  # a hole
            content[: places[3] + 10] + bytes(100) + content[places[3] + 110 :],
            content[: places[3]],  # truncated between members
            bytes(backwards),
        )
    ):
        path = tmp_path / f"damage-{number}.tar"
        path.write_bytes(damaged)
        refuse(path, path.name)
    for rest in (bytes(3 * 2**20 + 1), b""):  # zeros after the end are valid
        path = tmp_path / f"zeros-{len(rest)}.tar"
        path.write_bytes((content + rest) if rest else content.rstrip(b"\0") + bytes(2048))
        assert inspect_data(path).num_images == 2
