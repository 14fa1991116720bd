import copy
import re
import warnings

import numpy as np
import pytest

from hf_ngsan.data import load_coco_layout
from tests.data.facts import fails_naming
from tests.tables import each_row

CAT, DOG, BIRD = np.eye(3)


def test_rows_are_images_by_id_with_regions_and_captions_in_order(coco_folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of objects of other tests, which are collected now
        dataset = load_coco_layout(coco_folder.write(), "train")
    first, second = dataset
    assert (first["image_id"], second["image_id"]) == (3, 7)
    np.testing.assert_array_equal(second["visual_features"], [DOG, CAT])
    np.testing.assert_allclose(second["visual_boxes"], [[0.1, 0.1, 0.6, 0.6], [0.75, 0.5, 1, 1]], rtol=1e-6)
    assert second["captions"] == ["A cat and a dog.", "A dog."]
    assert second["objects"] == ["dog", "cat"]
    assert (second["width"], second["height"], second["split"]) == (200, 100, "train")
    np.testing.assert_array_equal(first["visual_features"], [BIRD])


def test_boxes_are_clipped_to_the_image_in_silence_for_rounding_and_counted_beyond(coco_folder):
    coco_folder.instances["annotations"][0]["bbox"] = [-0.5, -1, 100, 50]
    coco_folder.instances["annotations"][1]["bbox"] = [-20, 10, 200, 50]
    coco_folder.instances["annotations"][2]["bbox"] = [150, 50, 50, 0]
    with pytest.warns(UserWarning, match=": 1"), pytest.warns(UserWarning, match="widened .*: 1"):
        dataset = load_coco_layout(coco_folder.write(), "train")
    np.testing.assert_allclose(dataset[1]["visual_boxes"][0], [0, 0, 0.4975, 0.49], rtol=1e-6)
    np.testing.assert_allclose(dataset[0]["visual_boxes"], [[0, 0.1, 1, 0.6]], rtol=1e-6)


def test_what_is_left_out_is_counted(coco_folder):
    coco_folder.instances["images"] += [{"id": i, "width": 9, "height": 9} for i in (100, 101, 102)]
    coco_folder.instances["annotations"].append({"image_id": 100, "category_id": 5, "bbox": [0, 0, 9, 9]})
    coco_folder.captions["annotations"] += [
        {"id": 20, "image_id": 101, "caption": "Nothing."},
        {"id": 21, "image_id": 100, "caption": " \n"},
    ]
    with pytest.warns(UserWarning) as caught:
        assert len(load_coco_layout(coco_folder.write(), "train")) == 2
    numbers = [re.findall(r"\b\d+\b", str(item.message).replace(str(coco_folder.directory), "")) for item in caught]
    assert numbers == [["3", "5", "2", "2"], ["1"]]


def put(*path, value):
    """Changes the folder: puts a value into one of the files."""

    def change(folder):
        content = {"instances": folder.instances, "captions": folder.captions}
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


BOX = ("instances", "annotations", 1)
CAPTION = ("captions", "annotations", 2)


@each_row(
    ("change", "facts"),
    [
        (put("instances", "images", 1, "id", value=7), ["images[1]", "7"]),
        (put(*BOX, "image_id", value=4), ["instances_train.json, annotations[1]", "image_id is 4"]),
        (put(*BOX, "bbox", value=[1, 2, 3]), ["annotations[1]", "bbox", "[1, 2, 3]"]),
        (put(*BOX, "category_id", value=6), ["annotations[1]", "category_id is 6"]),
        (put(*BOX, "bbox", value=[150, 50, 10, 10]), ["annotations[1]", "bbox", "[150, 50, 10, 10]", "100 x 100"]),
        (put(*CAPTION, "image_id", value=4), ["captions_train.json, annotations[2]", "image_id is 4"]),
    ],
)
def test_a_wrong_file_is_one_sentence(coco_folder, change, facts):
    changed = copy.deepcopy(coco_folder)
    change(changed)
    with fails_naming(*facts):
        load_coco_layout(changed.write(), "train")
