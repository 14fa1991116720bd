"""Images with captions in tar and Parquet files."""

import io
import json
import tarfile

from datasets import Dataset, Features, List, Value, load_from_disk
from datasets import Image as ImageColumn
from PIL import Image

from hf_ngsan.data import load_data
from hf_ngsan.data.conversion import convert_features
from hf_ngsan.data.formats import recognise
from hf_ngsan.data.inspection import inspect_data
from tests.data.facts import fails_naming
from tests.data.formats.test_annotations import image_of, write_karpathy
from tests.tables import each_row

COLOURS = {7: "red", 12: "lime", 391895: "blue"}


def photo(image_id, kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (4, 3), COLOURS.get(image_id, "white")).save(file, kind)
    return file.getvalue()


def members_of(image_id):
    return {f"{image_id:09d}.png": photo(image_id), f"{image_id:09d}.txt": f"the  {image_id}\nan image\n".encode()}


def write_tar(path, members):
    """A tar file of contents, or of members that are no plain files."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def tar_of(path):
    return write_tar(path, {name: content for one in COLOURS for name, content in members_of(one).items()})


def write_parquet(path, splits=None):
    columns = {"image_id": Value("int64"), "image": ImageColumn(), "captions": List(Value("string"))}
    rows = {
        "image_id": list(COLOURS),
        "image": [{"bytes": photo(one), "path": None} for one in COLOURS],
        "captions": [[f"the {one}"] for one in COLOURS],
    }
    if splits:
        columns["split"], rows["split"] = Value("string"), splits
    Dataset.from_dict(rows, features=Features(columns)).to_parquet(path)
    return path


def rows_of(output):
    return {row["image_id"]: row for row in load_from_disk(str(output))}


def test_a_tar_file_gives_images_and_captions(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    path = tar_of(tmp_path / "000.tar")
    assert recognise(path).name == "webdataset"
    convert_features([path], tmp_path / "out", split="train", images_per_shard=2)
    rows = rows_of(tmp_path / "out")
    assert list(rows) == list(COLOURS)
    for image_id, row in rows.items():
        assert row["captions"] == [f"the {image_id}", "an image"] and (row["width"], row["height"]) == (4, 3)
        assert row["image"].convert("RGB").getpixel((0, 0)) == Image.new("RGB", (1, 1), COLOURS[image_id]).getpixel(
            (0, 0)
        )
    loaded = load_data(f"images:{tmp_path / 'out'}", "train")
    assert list(loaded["image_id"]) == list(COLOURS) and loaded[1]["captions"] == ["the 12", "an image"]


def test_names_that_are_no_numbers_and_captions_in_json(tmp_path):
    members = {
        "b/dog.jpg": photo(7, "JPEG"),
        "b/dog.json": json.dumps({"caption": "a dog", "width": 4}).encode(),
        "a/cat.jpeg": photo(12, "JPEG"),
        "a/cat.json": json.dumps({"captions": ["a cat", "two"]}).encode("utf-8-sig"),
    }
    convert_features([write_tar(tmp_path / "000.tar", members)], tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    assert [(row["file_name"], row["captions"]) for row in rows.values()] == [
        ("dog", ["a dog"]),
        ("cat", ["a cat", "two"]),
    ]


def test_shards_are_joined_with_captions(tmp_path):
    write_tar(tmp_path / "0.tar", {"000000007.png": photo(7)})
    write_tar(tmp_path / "1.tar", {"000000012.png": photo(12)})
    split = write_karpathy(tmp_path / "split.json", [image_of(7), image_of(12)])
    (tmp_path / "tars").mkdir()
    for name in "01":
        (tmp_path / f"{name}.tar").rename(tmp_path / "tars" / f"{name}.tar")
    convert_features([tmp_path / "tars", split], tmp_path / "out")
    assert [row["captions"][0] for row in rows_of(tmp_path / "out").values()] == ["A thing of 7.", "A thing of 12."]


def link(name, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


FAULTS = {
    "climbing": ({"../12.png": photo(12), "../12.txt": b"a"}, ["../12.png"]),
    "absolute": ({"/12.png": photo(12), "/12.txt": b"a"}, ["/12.png"]),
    "link": ({"12.png": link("12.png", tarfile.SYMTYPE), "12.txt": b"a"}, ["12.png", "link"]),
    "two images": ({"12.png": photo(12), "12.jpg": photo(12), "12.txt": b"a"}, ["12", "2 images"]),
    "no captions": ({"12.png": photo(12)}, ["12", "captions"]),
}


@each_row("fault", FAULTS)
def test_a_broken_sample_is_named_or_listed(fault, tmp_path):
    members, facts = FAULTS[fault]
    path = write_tar(tmp_path / "000.tar", {**members_of(7), **members, **members_of(391895)})
    with fails_naming("000.tar", *facts):
        convert_features([path], tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["000.tar"]
    result = convert_features([path], tmp_path / "out", skip_errors=True)
    assert (result.num_rows, len(result.skipped)) == (2, 1)


DAMAGES = ("two in one", "two in one, far apart", "a hole", "a hole in a header", "cut between members", "leads back")


def damaged_tars(folder):
    """Tar files of which tarfile gives but a part of the members, without a word."""
    content = tar_of(folder / "whole.tar").read_bytes()
    with tarfile.open(folder / "whole.tar") as archive:
        places = [member.offset for member in archive]
    (folder / "whole.tar").unlink()
    backwards = bytearray(content)
    backwards[places[2] + 124 : places[2] + 136] = b"\xff" * 10 + b"\xfe\x00"  # a size of -512 bytes
    backwards[places[2] + 148 : places[2] + 156] = b" " * 8
    sum_of_header = sum(backwards[places[2] : places[2] + 512])
    backwards[places[2] + 148 : places[2] + 156] = b"%06o\0 " % sum_of_header
    return {
        "two in one": content + content,
        "two in one, far apart": content + bytes(3 * 2**20) + content,
        "a hole": content[: places[2]] + bytes(2048) + content[places[2] + 2048 :],
        "a hole in a header": content[: places[3] + 10] + bytes(100) + content[places[3] + 110 :],
        "cut between members": content[: places[4]],
        "leads back": bytes(backwards),
    }


@each_row("damage", DAMAGES)
def test_no_member_is_lost_without_a_word(damage, tmp_path):
    path = tmp_path / "train.tar"
    path.write_bytes(damaged_tars(tmp_path)[damage])
    with fails_naming("train.tar"):
        convert_features([path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with fails_naming("train.tar"):
        inspect_data(path)


def test_zeros_behind_the_end_are_no_damage(tmp_path):
    path = tar_of(tmp_path / "train.tar")
    content = path.read_bytes()
    for rest in (bytes(3 * 2**20 + 1), b""):
        path.write_bytes((content + rest) if rest else content.rstrip(b"\0") + bytes(2048))
        assert inspect_data(path).num_images == 3


def test_a_member_that_is_there_twice_is_named_or_listed(tmp_path):
    path = write_tar(tmp_path / "train.tar", {**members_of(7), **members_of(12)})
    with tarfile.open(path, "a") as archive:
        member = tarfile.TarInfo("000000007.png")
        member.size = len(photo(391895))
        archive.addfile(member, io.BytesIO(photo(391895)))
    with fails_naming("train.tar", "000000007.png", "twice"):
        convert_features([path], tmp_path / "out")
    result = convert_features([path], tmp_path / "out", skip_errors=True)
    assert (result.num_rows, [entry["image_id"] for entry in result.skipped]) == (1, ["000000007"])


@each_row("has_split", [True, False])
def test_a_parquet_file(has_split, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    splits = ["train", "train", "val"] if has_split else None
    path = write_parquet(tmp_path / "photos.parquet", splits)
    assert recognise(path).name == "parquet"
    convert_features([path], tmp_path / "out", split=None if has_split else "test")
    found = rows_of(tmp_path / "out")
    assert {one: row["captions"] for one, row in found.items()} == {one: [f"the {one}"] for one in COLOURS}
    assert [row["split"] for row in found.values()] == (splits or ["test"] * 3)


def test_a_parquet_file_of_two_images_with_one_id(tmp_path, cache):
    rows = {"image_id": [7, 12, 7], "caption": ["a", "b", "c"]}
    rows["image"] = [{"bytes": photo(one), "path": None} for one in COLOURS]
    path = tmp_path / "photos.parquet"
    Dataset.from_dict(rows).cast_column("image", ImageColumn()).to_parquet(path)
    for skip_errors in (False, True):
        with fails_naming("photos.parquet", "image_id 7"):
            convert_features([path], tmp_path / "out", skip_errors=skip_errors)
    with fails_naming("photos.parquet", "image_id 7"):
        inspect_data(path)


def test_captions_and_splits_are_kept_whichever_image_comes_first(tmp_path, cache):
    everything = {"image_id": list(COLOURS), "caption": ["a", "b", "c"], "split": ["train", "test", "test"]}
    everything["image"] = [{"bytes": photo(one), "path": None} for one in COLOURS]
    for name, columns, options, kept in (
        ("captions", ("caption",), {}, [(12, ["b"], None), (391895, ["c"], None)]),
        ("splits", ("split",), {}, [(12, None, "test"), (391895, None, "test")]),
        ("known split", ("split",), {"split": "train"}, [(7, None, "train"), (12, None, "train")]),
    ):
        paths = []
        for part, rows in (("a", slice(0, 1)), ("b", slice(1, 3))):
            names = ("image_id", "image", *(columns if part == "b" else ()))
            dataset = Dataset.from_dict({one: everything[one][rows] for one in names})
            paths.append(tmp_path / f"{name} {part}.parquet")
            dataset.cast_column("image", ImageColumn()).to_parquet(paths[-1])
        if not options:
            with fails_naming(paths[0]):
                convert_features(paths, tmp_path / name)
        result = convert_features(paths, tmp_path / name, skip_errors=True, **options)
        assert [entry["image_id"] for entry in result.skipped] == ([] if options else ["7"]), name
        found = [(one, row.get("captions"), row.get("split")) for one, row in rows_of(tmp_path / name).items()]
        assert found[: len(kept)] == kept, name


def test_captions_of_files_are_kept_beside_annotations_without_any(tmp_path):
    tar = write_tar(tmp_path / "0.tar", {**members_of(7), **members_of(12)})
    sizes = {"images": [{"id": one, "file_name": f"{one}.jpg"} for one in (7, 12)], "annotations": []}
    (tmp_path / "sizes.json").write_text(json.dumps(sizes))
    convert_features([tar, tmp_path / "sizes.json"], tmp_path / "out")
    assert [row["captions"][0] for row in rows_of(tmp_path / "out").values()] == ["the 7", "the 12"]
