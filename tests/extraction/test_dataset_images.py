"""Extraction from a dataset of images: the same features as from the files themselves."""

import pytest
from datasets import Dataset, DatasetDict, Features, Image, List, Value

from hf_ngsan.data import DataError
from hf_ngsan.extraction import ExtractionError, list_images

from .tiny import extract, rows_of, write_photos

COLUMNS = Features({"image": Image(), "image_id": Value("int64"), "captions": List(Value("string"))})


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos", 5)


@pytest.fixture
def dataset(tmp_path, photos):
    """A saved dataset of the photos, with their bytes."""
    rows = [
        {
            "image": {"bytes": file.read_bytes(), "path": None},
            "image_id": int(file.stem),
            "captions": [f"photo {file.stem}"],
        }
        for file in sorted(photos.iterdir())
    ]
    DatasetDict(train=Dataset.from_list(rows, features=COLUMNS)).save_to_disk(tmp_path / "dataset")
    return f"images:{tmp_path / 'dataset'}"


def test_features_are_those_of_the_files(tmp_path, photos, dataset):
    extract(photos, tmp_path / "of_files", split="train")
    result = extract(list_images(dataset, split="train"), tmp_path / "of_dataset", split="train")
    assert (result.num_rows, result.skipped) == (5, [])
    for ours, theirs in zip(rows_of(tmp_path / "of_dataset"), rows_of(tmp_path / "of_files"), strict=True):
        assert ours["captions"] == [f"photo {ours['image_id']:06d}"]
        for column in ("image_id", "visual_features", "visual_boxes", "width", "height", "split"):
            assert ours[column] == theirs[column]


def test_mistakes_name_the_dataset(tmp_path, dataset):
    with pytest.raises(ExtractionError, match="--split"):
        list_images(dataset)
    with pytest.raises(ExtractionError, match="--image-folder"):
        list_images(dataset, tmp_path, split="train")
    with pytest.raises(DataError, match="'test'"):
        list_images(dataset, split="test")
    with pytest.raises(ExtractionError, match="scenes:size=3"):
        list_images("scenes:size=3", split="train")
