"""Images of datasets are decoded as by the datasets library, but safely for untrusted files."""

import subprocess

import datasets
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from PIL import Image, UnidentifiedImageError

from hf_ngsan.data import caption_features, load_data
from hf_ngsan.data.images import IMAGE_FORMATS
from hf_ngsan.data.images import files as decoding
from hf_ngsan.models import images
from tests.data.images.photos import encoded
from tests.models.test_load_image import photo
from tests.tables import each_row


def test_the_formats_are_those_of_image_processors():
    assert IMAGE_FORMATS == images.IMAGE_FORMATS


@each_row("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
@each_row("orientation", [None, 1, 6])
@each_row("mode", [None, "L"])
def test_images_are_those_of_the_datasets_library(kind, orientation, mode):
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    options = {"exif": exif} if kind not in ("GIF", "BMP", "PPM") else {}
    value, feature = {"bytes": encoded(photo(), kind, **options), "path": None}, datasets.Image(mode=mode)
    ours, theirs = decoding.decode_image(value, feature), feature.decode_example(value)
    assert (ours.mode, ours.size) == (theirs.mode, theirs.size)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_damaged_exif_costs_no_pixel():
    value = {"bytes": encoded(photo(), "PNG", exif=b"Exif\0\0no TIFF"), "path": None}
    assert decoding.decode_image(value, datasets.Image()).tobytes() == photo().tobytes()


def test_images_beside_features_are_decoded_so_too(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(subprocess, "check_call", None)
    row = {"visual_features": [[0.0] * 4], "visual_boxes": [[0, 0, 1, 1]], "captions": ["a photo"]}
    rows = [
        {"image_id": index, "image": {"bytes": content, "path": None}, **row}
        for index, content in enumerate((encoded(photo()), encoded(photo(), "EPS")))
    ]
    DatasetDict(train=Dataset.from_list(rows, features=caption_features(4, image=True))).save_to_disk(tmp_path)
    for _ in range(2):  # checked, and marked as checked
        loaded = load_data(f"features:{tmp_path}", "train")
        assert loaded[0]["image"].size == photo().size
        assert loaded.select([0]).select_columns(["image", "image_id"])[0]["image"].size == photo().size
        with pytest.raises(UnidentifiedImageError):
            loaded[1]
        with pytest.raises(UnidentifiedImageError):
            loaded.select([1]).select_columns(["image", "image_id"])[0]
