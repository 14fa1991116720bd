import hashlib
import json
import os

import datasets
import numpy
import pytest
import torch
from datasets import load_from_disk

from hf_ngsan.data import DataError, load_data
from hf_ngsan.extraction import ExtractionError, image_list, list_images
from hf_ngsan.extraction.extract import extract_features
from hf_ngsan.io.shards import ShardWriter
from hf_ngsan.models.image_processing_captioning import load_image
from tests.tables import each_row

from .tiny import extract, files_of, rows_of, tiny_processor, tiny_vision, write_coco_file, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"), 11)


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("finished") / "features"
    extract(photos, output, split="test")
    return output


def test_rows_are_what_the_model_sees_of_each_photo(photos, finished):
    rows = rows_of(finished)
    assert [row["image_id"] for row in rows] == list(range(1, 12))
    model, processor = tiny_vision(), tiny_processor()
    for row in rows:
        picture = load_image(photos / row["file_name"])
        assert (row["width"], row["height"]) == picture.size
        with torch.inference_mode():
            seen = model(**processor(images=[picture], return_tensors="pt"))
        numpy.testing.assert_allclose(row["visual_features"], seen.visual_features[0], atol=2e-3)
        numpy.testing.assert_allclose(row["visual_boxes"], seen.visual_boxes[0], atol=1e-6)


@each_row("options", [{"images_per_shard": 2}, {"num_workers": 2}, {"images_per_shard": 100}])
def test_shards_and_workers_change_no_row(photos, finished, tmp_path, options):
    extract(photos, tmp_path / "out", split="test", **options)
    assert rows_of(tmp_path / "out") == rows_of(finished)


def test_float32_and_captions(photos, tmp_path):
    names = {7: "000003.png", 5: "000001.png", 9: "000002.png"}
    captions = {7: ["a  dog\n", "a cat"], 5: ["a house"]}
    file = write_coco_file(tmp_path / "captions_val.json", names, captions)
    images = list_images(file, photos)
    assert "1 of 3" in images.notes[0]
    extract_features(tiny_vision(), tiny_processor(), images, tmp_path / "out", dtype="float32", num_workers=0)
    dataset = load_from_disk(str(tmp_path / "out"))
    assert dataset["image_id"][:] == [7, 5] and dataset["captions"][:] == [["a dog", "a cat"], ["a house"]]
    assert dataset.features["visual_features"].feature.feature.dtype == "float32"
    assert dataset["file_name"][:] == ["000003.png", "000001.png"]


def test_another_split_is_added_by_a_run_that_resumes_an_interrupted_one(photos, tmp_path, monkeypatch):
    write_photos(tmp_path / "more", 5, first=50)
    extract(photos, tmp_path / "out", split="train")
    before, commit = rows_of(tmp_path / "out"), ShardWriter.commit

    def interrupted(*arguments, **options):
        commit(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ShardWriter, "commit", interrupted)
        extract(tmp_path / "more", tmp_path / "out", split="test")
    assert rows_of(tmp_path / "out") == before
    result = extract(tmp_path / "more", tmp_path / "out", split="test")
    assert (result.num_rows, result.num_new) == (16, 1)
    assert rows_of(tmp_path / "out")[:11] == before
    assert load_data(f"features:{tmp_path / 'out'}", "test")["image_id"][:] == list(range(50, 55))
    assert len(load_data(f"features:{tmp_path / 'out'}", "train")) == 11


def raising_for(name, error):
    """`load_image` that fails for one file, as a library may."""

    def load(source, *arguments, **options):
        if str(source["path"]).endswith(name):
            raise error
        return load_image(source, *arguments, **options)

    return load


@each_row("error", [SyntaxError("not a TIFF file"), RecursionError("too deep"), KeyError(), ValueError("x")])
def test_one_bad_image_never_costs_the_others_whatever_a_library_raises(tmp_path, monkeypatch, error):
    photos = write_photos(tmp_path / "photos", 5)
    monkeypatch.setattr(image_list, "load_image", raising_for("000004.png", error))
    result = extract(photos, tmp_path / "out", skip_errors=True)
    assert result.num_rows == 4
    [skipped] = result.skipped
    assert "000004.png" in skipped["reason"] and type(error).__name__ in skipped["reason"]
    assert json.loads((tmp_path / "out" / "skipped.json").read_text()) == [skipped]
    with pytest.raises(ExtractionError, match=r"000004\.png"):
        extract(photos, tmp_path / "strict")


def test_frames_of_clips_become_rows(tmp_path):
    clips = list_images("moving_scenes:size=3,num_frames=4,image_size=32", split="train")
    model = tiny_vision(kind="frames")
    assert extract(clips, tmp_path / "out", model=model, split="train").num_rows == 3
    assert extract(clips, tmp_path / "out", model=model, split="train").num_new == 0
    rows = rows_of(tmp_path / "out")
    assert [len(row["visual_features"]) for row in rows] == [4, 4, 4] and "visual_boxes" not in rows[0]


def test_an_image_that_was_repaired_is_added_by_the_next_run(tmp_path):
    photos = write_photos(tmp_path / "photos", 5)
    good = (photos / "000001.png").read_bytes()
    (photos / "000001.png").write_bytes(b"")
    extract(photos, tmp_path / "out", skip_errors=True)
    (photos / "000001.png").write_bytes(good)
    result = extract(photos, tmp_path / "out")
    assert (result.num_rows, result.num_new, result.skipped) == (5, 1, [])
    assert [row["image_id"] for row in rows_of(tmp_path / "out")] == [2, 3, 4, 5, 1]


def test_images_of_two_splits_may_have_the_same_ids(tmp_path):
    for split in ("train", "validation", "train", "validation"):
        write_photos(tmp_path / "photos" / split, 3)
        images = list_images(f"images:{tmp_path / 'photos'}", split=split)
        extract(images, tmp_path / "features", split=split)
    for split in ("train", "validation"):
        rows = load_data(f"features:{tmp_path / 'features'}", split)
        assert rows["image_id"][:] == [1, 2, 3]
        assert rows["file_name"][:] == [f"{split}/00000{number}.png" for number in (1, 2, 3)]
    (tmp_path / "photos" / "validation" / "000002.png").write_bytes(b"other")
    with pytest.raises(ExtractionError, match=r"validation/000002\.png .* changed"):
        extract(images, tmp_path / "features", split="validation")


def test_an_unreadable_image_is_an_error_after_which_the_extraction_resumes(tmp_path):
    photos = write_photos(tmp_path / "photos", 5)
    good = (photos / "000005.png").read_bytes()
    (photos / "000005.png").write_bytes(b"")
    with pytest.raises(ExtractionError, match=r"000005\.png"):
        extract(photos, tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        load_from_disk(str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob(".incomplete-*"))
    (photos / "000005.png").write_bytes(good)
    extract(photos, tmp_path / "out")
    extract(photos, tmp_path / "straight")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "straight")


def rewrite(file, content, seconds=5):
    """Changes the content of a file and gives it a later time."""
    file.write_bytes(content)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + seconds * 10**9))


def swap(first, second):
    contents = first.read_bytes(), second.read_bytes()
    rewrite(first, contents[1])
    rewrite(second, contents[0])


def test_an_image_that_changed_under_its_name_is_noticed(tmp_path):
    photos = write_photos(tmp_path / "photos", 5)
    extract(photos, tmp_path / "out")
    swap(photos / "000002.png", photos / "000004.png")
    before = files_of(tmp_path / "out")
    with pytest.raises(ExtractionError) as caught:
        extract(photos, tmp_path / "out")
    for fact in (str(photos), "000002.png", "image 2"):
        assert fact in str(caught.value)
    assert files_of(tmp_path / "out") == before


def test_features_that_changed_in_a_file_of_the_same_size_are_noticed(tmp_path, photos):
    extract(photos, tmp_path / "out", split="test")
    shards = sorted((tmp_path / "out").glob("*.arrow"))
    content = shards[1].read_bytes()
    rewrite(shards[1], content)  # a copy
    assert extract(photos, tmp_path / "out", split="test").num_new == 0
    load_data(f"features:{tmp_path / 'out'}", "test")
    features = numpy.asarray(rows_of(tmp_path / "out")[5]["visual_features"], numpy.float16)
    assert content.count(features.tobytes()) == 1
    rewrite(shards[1], content.replace(features.tobytes(), (features + 1).tobytes()), seconds=10)
    with pytest.raises(DataError, match=shards[1].name):
        load_data(f"features:{tmp_path / 'out'}", "test")
    for damage in (shards[1].unlink, lambda: shards[1].write_bytes(content[:1000])):
        damage()
        extract(photos, tmp_path / "out", split="test")
        assert shards[1].read_bytes() == content
    load_data(f"features:{tmp_path / 'out'}", "test")


def test_no_readable_image_at_all_leaves_nothing(tmp_path):
    photos = write_photos(tmp_path / "photos", 3)
    for file in photos.iterdir():
        file.write_bytes(b"")
    with pytest.raises(ExtractionError, match="3"):
        extract(photos, tmp_path / "out", skip_errors=True)
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


@each_row(
    ("changes", "message"),
    [
        ({"model": lambda: tiny_vision(seed=1)}, "weights"),
        ({"model": lambda: tiny_vision(grid_size=[3, 3])}, r"3, 3.*2, 2"),
        ({"model": lambda: tiny_vision(grid_size=None)}, "2, 2"),
        ({"processor": lambda: tiny_processor(image_mean=[0, 0, 0])}, "preprocessing"),
        ({"dtype": lambda: "float32"}, "dtype .float32, not float16"),
        ({"split": lambda: None}, "columns .*'split'"),
        ({"split": lambda: "train"}, "split 'train'"),
    ],
)
def test_what_does_not_belong_together_is_refused(photos, finished, changes, message):
    before = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in finished.rglob("*.*") if file.is_file()}
    options = {"split": "test", **{key: make() for key, make in changes.items()}}
    with pytest.raises(ExtractionError, match=message) as caught:
        extract(photos, finished, **options)
    assert "\n" not in str(caught.value)
    assert before == {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in before}


def test_features_that_float16_cannot_hold_are_an_error(photos, tmp_path):
    model = tiny_vision()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1e4)
    with pytest.raises(ExtractionError, match="--dtype float32"):
        extract(photos, tmp_path / "out", model=model)
    extract(photos, tmp_path / "out", model=model, dtype="float32", images_per_shard=6)  # as the message advises
    assert len(list((tmp_path / "out").glob("*.arrow"))) == 2
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ExtractionError, match=r"000001\.png"):
        extract(photos, tmp_path / "nan", model=model)


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
    kinds = {"image_id": datasets.Value("int64"), "captions": datasets.List(datasets.Value("string"))}
    columns = datasets.Features({"image": datasets.Image(), **kinds})
    datasets.DatasetDict(train=datasets.Dataset.from_list(rows, features=columns)).save_to_disk(tmp_path / "dataset")
    return f"images:{tmp_path / 'dataset'}"


def test_features_are_those_of_the_files(tmp_path, photos, dataset):
    extract(photos, tmp_path / "of_files", split="train")
    result = extract(list_images(dataset, split="train"), tmp_path / "of_dataset", split="train")
    assert (result.num_rows, result.skipped) == (11, [])
    for ours, theirs in zip(rows_of(tmp_path / "of_dataset"), rows_of(tmp_path / "of_files"), strict=True):
        assert ours["captions"] == [f"photo {ours['image_id']:06d}"]
        for column in ("image_id", "visual_features", "visual_boxes", "width", "height", "split"):
            assert ours[column] == theirs[column]
