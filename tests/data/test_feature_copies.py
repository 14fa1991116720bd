"""Copies of features: the choice of a copy for each row, and repeatable epochs."""

from collections import Counter

import numpy as np
import pytest

from hf_ngsan.data import load_data
from hf_ngsan.data.saved import FeatureCopies, copy_folder
from tests.data.facts import fails_naming
from tests.data.rows import dataset_of, make_row

IMAGES, COPIES = 60, 3


def save(folder, value: float, images: range = range(IMAGES)) -> None:
    arrays = {item: np.full((2, 4), value + item / 100, dtype=np.float32) for item in images}
    rows = [make_row(item, 2, visual_features=array, split="train") for item, array in arrays.items()]
    dataset_of(rows, dtype="float32", split=True).save_to_disk(str(folder))


@pytest.fixture
def features(tmp_path):
    save(tmp_path / "features", 0)
    for number in range(1, COPIES + 1):
        save(copy_folder(tmp_path / "features", number), number, range(IMAGES)[::-1])
    return tmp_path / "features"


def versions(copies: FeatureCopies, features, epoch: int) -> list[int]:
    """Returns the version of each image in the rows; 0 = the original features."""
    rows = [copies(row, epoch) for row in load_data(f"features:{features}", "train")]
    actual = [float(row["visual_features"][0, 0]) - row["image_id"] / 100 for row in rows]
    assert np.allclose(actual, np.round(actual), atol=1e-4)  # the features of the row's image, not of another image
    return [round(version) for version in actual]


def test_every_version_is_drawn_as_often_and_an_epoch_can_be_repeated(features):
    copies = FeatureCopies(features, "train", seed=3)
    epochs = [versions(copies, features, epoch) for epoch in range(10)]
    drawn = Counter(version for epoch in epochs for version in epoch)
    expected = 10 * IMAGES / (COPIES + 1)
    assert set(drawn) == set(range(COPIES + 1))
    assert all(abs(number - expected) < 4 * expected**0.5 for number in drawn.values())
    assert epochs[0] != epochs[1]
    assert versions(FeatureCopies(features, "train", seed=3), features, 1) == epochs[1]
    assert versions(FeatureCopies(features, "train", seed=4), features, 1) != epochs[1]


def test_an_image_that_a_copy_lacks_is_named(tmp_path):
    save(tmp_path / "features", 0)
    with fails_naming("features", "--copies"):
        FeatureCopies(tmp_path / "features", "train")
    save(copy_folder(tmp_path / "features", 1), 1, range(IMAGES - 1))
    copies, row = FeatureCopies(tmp_path / "features", "train"), load_data(f"features:{tmp_path}/features", "train")[59]
    with fails_naming("image 59"):
        for epoch in range(50):
            copies(row, epoch)
