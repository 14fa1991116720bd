"""Untrusted datasets: no reader opens links out of the dataset, or hidden files."""

import os
import shutil

import pytest

from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.conversion import METADATA, convert_features
from hf_ngsan.data.images import sorted_files
from hf_ngsan.data.inspection import inspect_data
from hf_ngsan.extraction import list_images
from hf_ngsan.io.shards import SKIPPED
from tests.data import test_nlvr, test_parallel_text, test_vatex, test_vqa
from tests.data.conftest import CocoFolder
from tests.data.formats import files as formats
from tests.data.images.photos import lists, picture_bytes, write_image_folder, write_parquet
from tests.data.images.test_tar_files import PNG, write_tar
from tests.data.rows import dataset_of, make_row
from tests.tables import each_row

ROW = {"file_name": "photo_0.png", "caption": "a cat"}


def write_photos(folder, name="2.png"):
    (folder / "more").mkdir()
    (folder / "more" / name).write_bytes(picture_bytes(1))
    (folder / "more" / "2.txt").write_text("a cat")


def write_nlvr(folder):
    test_nlvr.write(folder, [test_nlvr.example()])
    (folder / "dev" / "images" / "0").mkdir(parents=True)
    (folder / "dev" / "images" / "0" / "dev-12-3-0.png").write_bytes(picture_bytes(1))


def write_vqa(folder):
    test_vqa.write_questions(folder, [10])
    dataset_of([make_row(1)]).save_to_disk(str(folder.parent / "features"))


def write_cocobu(folder):
    formats.write_cocobu(folder)
    shutil.rmtree(folder / "cocobu_fc")  # which no reader opens


def write_converted(folder):
    formats.write_pth(folder.parent / "grids")
    convert_features([folder.parent / "grids"], folder, split="train")
    for name in (METADATA, SKIPPED):  # which no reader opens
        (folder / name).unlink()


def load(spec, split="train"):
    return lambda folder: list(load_data(spec.format(folder=folder), split))


def convert(folder):
    shutil.rmtree(folder.parent / "new", ignore_errors=True)
    convert_features([folder], folder.parent / "new")


IMAGES = (load("images:{folder}"), load("images:{folder},streaming=true"), inspect_data)


@each_row(
    ("write", "doors"),
    [
        (write_photos, IMAGES),
        (lambda folder: write_image_folder(folder / "a", [ROW], ".csv", range(1)), IMAGES),
        (lambda folder: write_photos(folder, "2.mp4"), [load("videos:{folder}")]),
        (lambda folder: write_parquet(lists(), folder / "train.parquet"), IMAGES),
        (lambda folder: write_tar(folder / "train.tar", {"1.png": PNG}), IMAGES),
        (write_photos, (list_images, sorted_files)),
        (lambda folder: dataset_of([make_row()]).save_to_disk(str(folder)), (load("features:{folder}"), inspect_data)),
        (write_converted, [load("features:{folder}")]),
        (lambda folder: CocoFolder(folder).write(), [load("coco-layout:{folder}")]),
        (test_parallel_text.write, [load("parallel:{folder},source=en,target=de")]),
        (test_vatex.write, [load("vatex:{folder}", "validation")]),
        (write_vqa, [load("vqa:{folder},features={folder}/../features", "validation")]),
        (write_nlvr, [load("nlvr:{folder},images=true", "dev")]),
        (write_cocobu, [convert]),
        (lambda folder: formats.write_vqa(folder / "all"), (convert, inspect_data)),
        (lambda folder: formats.write_pth(folder / "all"), (convert, inspect_data)),
        (lambda folder: formats.write_m2(folder / "all.hdf5"), (convert, inspect_data)),
    ],
)
def test_no_link_leads_out(write, doors, tmp_path, cache):
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    write(data)
    places = sorted(data.rglob("*"))
    for place in places:
        (place.parent / f"._{place.name}").write_bytes(b"\0\5\x16\7")  # macOS writes such a file for each file
    for door in doors:
        door(data)
    for place in (place for place in places if list_images not in doors or place.suffix != ".txt"):
        os.rename(place, outside)
        place.symlink_to(os.path.relpath(outside, place.parent))
        for door in doors:
            shutil.rmtree(cache, ignore_errors=True)
            with pytest.raises(DataError):
                door(data)
        place.unlink()
        os.rename(outside, place)


def test_no_path_of_nlvr_leads_out(tmp_path, cache):
    (tmp_path / "dev-12-3-0.png").write_bytes(picture_bytes(1))
    (tmp_path / "data" / "dev" / "images").mkdir(parents=True)
    test_nlvr.write(tmp_path / "data", [test_nlvr.example(directory="../../..")])
    with pytest.raises(DataError, match="outside"):
        load("nlvr:{folder},images=true", "dev")(tmp_path / "data")
