import numpy as np
from datasets import Dataset, Features, Value, load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hf_ngsan.data import caption_features, check_dataset, check_row, clamp_boxes
from hf_ngsan.data.contract import BOX_TOLERANCE, MIN_SIDE, with_arrays
from hf_ngsan.models import processing_captioning
from tests.data.facts import fails_naming
from tests.data.rows import make_row
from tests.tables import each_row


def changed(field, index, value):
    row = make_row()
    row[field] = row[field].copy()
    row[field][index] = value
    return row


def test_rows_survive_the_disk_and_are_read_from_the_mapped_file(tmp_path):
    rows = [make_row(regions=regions) for regions in (2, 5, 1)]
    Dataset.from_list(rows, features=caption_features(4)).save_to_disk(tmp_path / "saved")
    saved = load_from_disk(tmp_path / "saved")
    assert saved.cache_files  # backed by the file, not by memory
    assert saved.features == caption_features(4)
    assert str(saved.data.column("visual_features").type.value_type.value_type) == "halffloat"
    for row, original in zip(with_arrays(saved), rows, strict=True):
        assert row["visual_features"].dtype == np.float32
        np.testing.assert_array_equal(row["visual_features"], original["visual_features"].astype(np.float32))
        np.testing.assert_array_equal(row["visual_boxes"], original["visual_boxes"])
        assert (row["image_id"], row["captions"]) == (5, ["a cat"])
        assert type(row["image_id"]) is int
        assert type(row["captions"]) is list


@each_row(
    ("row", "facts"),
    [
        (changed("visual_features", (1, 2), np.nan), ["visual_features[1, 2]", "nan"]),
        (make_row(width=3), ["visual_features", "3", "4"]),
        (changed("visual_boxes", (1, 2), 1.5), ["visual_boxes[1]", "1.5", "[0, 1]"]),
        (make_row(visual_features=None), ["visual_features"]),
        (make_row(visual_features=["a", "b"]), ["visual_features"]),
        (make_row(visual_features=np.zeros(3)), ["visual_features", "(3,)"]),
        (make_row(visual_boxes=[]), ["visual_boxes", "0", "3"]),
        (make_row(visual_boxes=np.zeros((3, 3))), ["visual_boxes", "(3, 3)"]),
        (make_row(captions=[]), ["captions"]),
        (make_row(captions="a cat"), ["captions", "'a cat'"]),
        (make_row(captions={"raw": ["a cat"]}), ["captions", "'raw'"]),
        (make_row(captions=["a cat", " "]), ["captions[1]", "' '"]),
    ],
)
def test_a_bad_row_is_one_sentence_that_names_it(row, facts):
    with fails_naming("mine, row 8: ", *facts):
        check_row(row, where="mine, row 8", feature_size=4)


sides = st.floats(0, 1, width=32)


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.just(4)), elements=sides), st.integers(0, 5))
def test_clamped_boxes_have_area_and_stay_in_the_image(boxes, flat):
    boxes = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)
    boxes[flat % len(boxes), 2] = boxes[flat % len(boxes), 0]
    clamped, changes = clamp_boxes(boxes)
    without_area = (boxes[:, 2:] == boxes[:, :2]).any(axis=1)
    assert changes == without_area.sum() >= 1
    assert (clamped[:, 2:] > clamped[:, :2]).all()
    assert clamped.min() >= 0 and clamped.max() <= 1
    np.testing.assert_array_equal(clamped[~without_area], boxes[~without_area])
    widened = (clamped[:, 2:] - clamped[:, :2])[boxes[:, 2:] == boxes[:, :2]]
    np.testing.assert_allclose(widened, MIN_SIDE, rtol=1e-3)


def dataset_of(rows, **features):
    return Dataset.from_list(rows, features=Features({**caption_features(4), **features}))


def test_columns_without_a_value_are_left_out():
    dataset = dataset_of([make_row(visual_boxes=None, captions=None)])
    assert check_dataset(dataset, name="mine").column_names == ["image_id", "visual_features"]


def test_what_is_no_dataset_of_features_is_named():
    rows = dataset_of([make_row()])
    for wrong, fact in (
        (rows.select([]), "0 rows"),
        (rows.remove_columns("image_id"), "image_id"),
        (rows.cast_column("image_id", Value("string")), "'5'"),
    ):
        with fails_naming("mine", fact):
            check_dataset(wrong, name="mine")


def test_rows_and_models_agree_on_how_far_boxes_may_reach():
    assert BOX_TOLERANCE == processing_captioning.BOX_TOLERANCE


def test_boxes_in_some_rows_only_are_an_error():
    with fails_naming("row 1", "visual_boxes"):
        check_dataset(dataset_of([make_row(), make_row(visual_boxes=None)]), name="mine")
