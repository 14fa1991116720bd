"""Images with captions in tar and Parquet files."""

import io
import tarfile

from datasets import Dataset, Features, List, Value, load_from_disk
from datasets import Image as ImageColumn
from PIL import Image

from hf_ngsan.data import load_data
from hf_ngsan.data.conversion import convert_features
from hf_ngsan.data.formats import recognise
from hf_ngsan.data.inspection import inspect_data
from tests.data.facts import fails_naming
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


def link(name, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


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
