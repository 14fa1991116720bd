"""Tiny datasets of images, in the layouts that people use."""

import csv
import io
import json
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, Image, List, Value
from PIL import Image as PillowImage

CAPTIONS = [["a cat", "one cat"], ["a dog", "one dog"], ["a cow", "one cow"]]


def picture(index: int) -> PillowImage.Image:
    """A picture of one colour, which encodes its index."""
    return PillowImage.new("RGB", (20 + index, 10), (index * 40, 0, 0))


def index_of(image: PillowImage.Image) -> int:
    return image.width - 20


def encoded(image: PillowImage.Image, kind: str = "PNG", **options: object) -> bytes:
    """The content of a file of the image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture_bytes(index: int) -> bytes:
    return encoded(picture(index))


def table(columns: dict[str, list], image: str = "image", **features) -> Dataset:
    """A dataset whose column `image` contains the pictures of these indices."""
    columns = {**columns, image: [{"bytes": picture_bytes(index), "path": None} for index in columns[image]]}
    return Dataset.from_dict(columns).cast_column(image, Image())


def lists() -> Dataset:
    return table({"image": [0, 1, 2], "captions": CAPTIONS})


def one_row_a_caption(**more: list) -> Dataset:
    """Two captions of each picture; those of the first picture are at both ends."""
    indices, texts = [0, 1, 1, 2, 2, 0], ["a cat", "a dog", "one dog", "a cow", "one cow", "one cat"]
    columns = {name: [values[i] for i in indices] for name, values in more.items()}
    return table({"image": indices, "caption": texts, **columns})


def several_columns() -> Dataset:
    first, second = zip(*CAPTIONS, strict=True)
    return table({"image": [0, 1, 2], "caption_1": list(second), "caption_0": list(first)})


def write_parquet(dataset: Dataset, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(str(file))
    return file


def write_image_folder(folder: Path, rows: list[dict], suffix: str, indices: range = range(3)) -> Path:
    """Files `photo_0.png` … and their metadata in a file of this suffix."""
    folder.mkdir(parents=True)
    for index in indices:
        (folder / f"photo_{index}.png").write_bytes(picture_bytes(index))
    with open(folder / f"metadata{suffix}", "w", encoding="utf-8", newline="") as file:
        if suffix == ".csv":
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def parquet_folder(folder: Path) -> Path:
    write_parquet(lists(), folder / "train-00000-of-00001.parquet")
    write_parquet(lists().select([2, 0]), folder / "validation-00000-of-00001.parquet")
    return folder


def encoded_without_description(dataset: Dataset) -> Dataset:
    """The same without the types of images, as programs other than `datasets` write Parquet."""
    plain = {"image": {"bytes": Value("binary"), "path": Value("string")}, "captions": List(Value("string"))}
    return Dataset.from_list(dataset.cast_column("image", Image(decode=False)).to_list(), features=Features(plain))


def split_dictionary() -> DatasetDict:
    return DatasetDict(train=lists(), val=lists().select([2, 0]))
