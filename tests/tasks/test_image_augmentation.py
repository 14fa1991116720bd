"""Augmented images: their pixels, boxes and captions, and repeatable epochs."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.data import load_data
from hf_ngsan.data.saved import copy_folder
from hf_ngsan.tasks import train
from hf_ngsan.tasks.caption_rows import AugmentationSettings, ImageAugmentation, crop_box, cropped, mirrored_row
from hf_ngsan.training import ConfigError
from tests.tables import each_row
from tests.tasks.test_pixels import PIXELS
from tests.tasks.tiny import tiny_training_config
from tests.training.test_loop import same_weights


def row(**fields) -> dict:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    boxes = [[0.0, 0.1, 0.2, 0.5], [0.5, 0.0, 1.0, 1.0]]
    captions = ["a dog on the left", "Right of a cat"]
    return {"image_id": 7, "image": Image.fromarray(pixels), "visual_boxes": boxes, "captions": captions, **fields}


def test_a_mirror_image_has_its_boxes_and_sides():
    changed = mirrored_row(row())
    before, after = np.asarray(row()["image"]), np.asarray(changed["image"])
    for x in range(30):
        np.testing.assert_array_equal(after[:, x], before[:, 29 - x])
    np.testing.assert_allclose(changed["visual_boxes"], [[0.8, 0.1, 1.0, 0.5], [0.0, 0.0, 0.5, 1.0]], atol=1e-6)
    assert changed["captions"] == row()["captions"]


def test_captions_with_sides_keep_their_image():
    augment = ImageAugmentation(AugmentationSettings(flip=1.0))
    for captions, is_mirrored in (
        (["a dog", "on the Left"], False),
        (["the rightmost of two"], False),
        (["bright leftovers"], True),
        ([], True),
    ):
        changed = augment(row(captions=captions), epoch=0)
        expected = mirrored_row(row(captions=captions)) if is_mirrored else row(captions=captions)
        assert np.array_equal(np.asarray(changed["image"]), np.asarray(expected["image"]))
        assert changed["captions"] == expected["captions"]


def test_a_crop_moves_its_boxes():
    changed = cropped(row(), (15, 5, 30, 20))
    np.testing.assert_array_equal(np.asarray(changed["image"]), np.asarray(row()["image"])[5:20, 15:30])
    np.testing.assert_allclose(changed["visual_boxes"], [[0.0, 0.0, 0.0, 1 / 3], [0.0, 0.0, 1.0, 1.0]], atol=1e-6)


@each_row("size", [(30, 20), (8, 500), (500, 8)])
def test_crops_keep_their_share_and_their_shape(size):
    random = np.random.default_rng(0)
    crops = [crop_box(size, 0.3, random) for _ in range(300)]
    full = (0, 0, *size)
    for left, upper, right, lower in crops:
        assert 0 <= left < right <= size[0]
        assert 0 <= upper < lower <= size[1]
        width, height = (right - left) / size[0], (lower - upper) / size[1]
        assert width * height > 0.3 * (1 - 0.5 / min(size)) ** 2 - 0.05
        assert 0.6 < width / height < 1.65  # 3/4 to 4/3, and rounding
    assert len(set(crops)) > 30
    assert sum(crop == full for crop in crops) < 60


def test_an_epoch_can_be_repeated_and_the_next_is_another():
    settings = AugmentationSettings(smallest_crop=0.5, flip=0.5, color_jitter=0.2)

    def pixels(seed, epoch, image_id=7) -> bytes:
        return ImageAugmentation(settings, seed)(row(image_id=image_id, captions=[]), epoch)["image"].tobytes()

    assert pixels(0, 1) == pixels(0, 1)
    assert len({pixels(0, 1), pixels(0, 2), pixels(1, 1), pixels(0, 1, image_id=8)}) == 4


def test_a_run_with_copies_of_features_resumes_bit_exactly(tmp_path):
    features = tmp_path / "features"
    rows = load_data("scenes:size=8,validation=4,test=1", "train").map(lambda row: {**row, "split": "train"})
    rows.save_to_disk(str(features))
    darker = rows.map(lambda row: {**row, "visual_features": 0.5 * np.asarray(row["visual_features"])})
    darker.save_to_disk(str(copy_folder(features, 1)))

    def run(name, epochs, copies=True, resume=False):
        data = {"spec": f"features:{features}", "validation_split": None}
        made = tiny_training_config(tmp_path / name, data=data, training={"schedule": "constant", "epochs": epochs})
        train(dataclasses.replace(made, augmentation=AugmentationSettings(feature_copies=copies)), resume=resume)
        return tmp_path / name / "last"

    full = run("whole", 2)
    run("parts", 1)
    assert same_weights(run("parts", 2, resume=True), full)
    assert not same_weights(run("plain", 2, copies=False), full)


@each_row(
    ("make", "sections", "settings", "named"),
    [
        (tiny_training_config, {"data": PIXELS}, {"flip": 0.5}, "augmentation"),
        (tiny_training_config, {}, {"feature_copies": True}, r"augmentation\.feature_copies"),
    ],
)
def test_augmentation_that_data_or_stages_do_not_allow(tmp_path, make, sections, settings, named):
    made = make(tmp_path / "run", **sections)
    with pytest.raises(ConfigError, match=named):
        train(dataclasses.replace(made, augmentation=AugmentationSettings(**settings)))
