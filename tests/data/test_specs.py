import shutil

import numpy as np
import pytest
from datasets import Array2D, Dataset, DatasetDict, Features, List, Value, concatenate_datasets

from hf_ngsan.data import caption_features, load_data
from hf_ngsan.io.files import temporary_path
from tests.data.facts import fails_naming
from tests.data.rows import dataset_of, make_row
from tests.tables import each_row


def make_dataset(rows=3, first=0, **changes):
    ids = range(first, first + rows)
    return dataset_of(make_row(number, 2, **{"captions": [f"caption {number}"], **changes}) for number in ids)


def save(folder, **splits):
    """Saves splits; returns the spec."""
    DatasetDict(**splits).save_to_disk(folder / "mine")
    return f"features:{folder / 'mine'}"


def test_a_larger_size_adds_scenes_to_the_same_ones_and_ids_are_unique():
    assert len(load_data("scenes", "validation")) == 200
    assert len(load_data("scenes:validation=7,test=9", "test")) == 9
    with fails_naming("'dev'", "train, validation, test"):
        load_data("scenes", "dev")
    small, large = load_data("scenes:size=20", "train"), load_data("scenes:size=30", "train")
    assert small["captions"] == large["captions"][:20]
    splits = ("train", "validation", "test")
    ids = [image_id for split in splits for image_id in load_data("scenes:size=30", split)["image_id"]]
    assert len(set(ids)) == len(ids) and ids[30] == 10**8  # of the first scene of the second split
    assert load_data("scenes:size=20,seed=1", "train")["captions"] != small["captions"]


@each_row(
    ("spec", "facts"),
    [
        ("coco", ["'coco'", "scenes", "coco-layout:DIR", "features:DIR"]),
        ("image:photos", ["image:photos", "images?"]),
        ("scenes:sise=3", ["'sise'", "size, validation, test, seed, images, image_size"]),
        ("scenes:size=many", ["size", "'many'", "whole number"]),
        ("scenes:size=3,size=4", ["'size'", "once"]),
        ("scenes:size=0", ["size"]),
        ("scenes:language=de", ["'de'", "en or zh"]),
        ("coco-layout:no/such/folder", ["no/such/folder"]),
        ("parallel:mine,source=en", ["parallel:mine", "target="]),
        ("features", ["features:DIR"]),
        ("features:no/such/folder", ["no/such/folder"]),
    ],
)
def test_a_wrong_spec_is_one_sentence(spec, facts):
    with fails_naming(*facts):
        load_data(spec, "train")


def test_a_saved_dictionary_of_splits(tmp_path):
    spec = save(tmp_path, train=make_dataset(3), val=make_dataset(2, first=10, visual_boxes=None))
    dataset = load_data(spec, "validation")
    assert dataset["image_id"] == [10, 11]
    assert dataset[0]["visual_features"].dtype == np.float32 and "visual_boxes" not in dataset[0]
    assert all(str(tmp_path / "mine") in file["filename"] for file in dataset.cache_files)
    with fails_naming("'test'", "train, val"):
        load_data(spec, "test")


def test_a_saved_dataset_with_a_split_column(tmp_path):
    both = concatenate_datasets([make_dataset(3), make_dataset(2, first=10)])
    both.add_column("split", ["train", "test", "train", "validation", "test"]).save_to_disk(tmp_path / "mine")
    spec = f"features:{tmp_path / 'mine'}"
    assert load_data(spec, "train")["image_id"] == [0, 2]
    assert load_data(spec, "val")["image_id"] == [10]
    with fails_naming("'dev'", "train, test, validation"):
        load_data(spec, "dev")
    both.save_to_disk(tmp_path / "other")
    assert len(load_data(f"features:{tmp_path / 'other'}", "train")) == 5
    with fails_naming("'test'", "'split'"):
        load_data(f"features:{tmp_path / 'other'}", "test")


def test_saved_data_are_checked_and_again_after_a_change(tmp_path):
    assert len(load_data(save(tmp_path, train=make_dataset()), "train")) == 3
    shutil.rmtree(tmp_path / "mine")
    bad = np.array([[0, 0, 1, 1], [0.25, 0.5, 0.5, 1.75]])
    spec = save(tmp_path, train=make_dataset(visual_boxes=bad))
    for _ in range(2):
        with fails_naming("mine, split train, row 0", "image_id 0", "visual_boxes[1]", "1.75"):
            load_data(spec, "train")


@each_row("boxes", [None, Array2D((None, 4), "float32"), List(List(Value("float64")))])
def test_boxes_without_area_of_any_type_are_widened_with_a_warning_each_time(tmp_path, boxes):
    rows = make_dataset(visual_boxes=np.array([[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.5]]))
    if boxes is not None:
        types = {**caption_features(4), "visual_features": Array2D((None, 4), "float32"), "visual_boxes": boxes}
        rows = Dataset.from_list([dict(row) for row in rows], features=Features(types))
    spec = save(tmp_path, train=rows)
    for _ in range(2):
        with pytest.warns(UserWarning, match="boxes .*: 3"):
            rows = load_data(spec, "train")
        for row in rows:
            assert row["visual_boxes"].shape == row["visual_features"].shape == (2, 4)
            assert (row["visual_boxes"][:, 3] > row["visual_boxes"][:, 1]).all()


def test_what_a_killed_process_left_is_not_taken_for_a_dataset(cache):
    load_data("scenes:size=20", "train")
    (file,) = cache.rglob("data.arrow")
    incomplete = temporary_path(file.parent)
    file.parent.rename(incomplete)
    file = incomplete / "data.arrow"
    file.write_bytes(file.read_bytes()[:100])
    assert len(load_data("scenes:size=20", "train")) == 20
    assert not incomplete.exists()
