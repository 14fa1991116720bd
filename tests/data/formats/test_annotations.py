"""Captions, splits and sizes are joined with features by image id; unmatched ones are listed."""

import json

from datasets import load_from_disk

from hf_ngsan.data import load_data
from hf_ngsan.data.annotations import ANNOTATION_FORMATS, Annotations
from hf_ngsan.data.conversion import convert_features
from tests.data.facts import fails_naming
from tests.data.formats.files import SIZES, write_cocobu, write_tsv
from tests.tables import each_row

SPLITS = {7: "train", 12: "restval", 391895: "val"}


def image_of(image_id, place=0, **changes):
    """An image of a Karpathy file."""
    image = {
        "filename": f"COCO_val2014_{image_id:012d}.jpg",
        "imgid": place,
        "cocoid": image_id,
        "split": SPLITS.get(image_id, "test"),
        "sentences": [
            {"tokens": ["a", "thing"], "raw": f"A  thing of {image_id}. "},
            {"tokens": ["another"], "raw": "Another"},
        ],
        **changes,
    }
    return {key: value for key, value in image.items() if value is not None}


def write_json(path, document):
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_karpathy(path, images=None):
    images = [image_of(image_id) for image_id in SIZES] if images is None else images
    return write_json(path, {"images": images, "dataset": "coco"})


def write_coco(path, ids=SIZES):
    images = [{"id": key, "width": SIZES[key][0], "height": SIZES[key][1], "file_name": f"{key}.jpg"} for key in ids]
    annotations = [{"id": 100 - key % 50, "image_id": key, "caption": f"the {key}"} for key in ids]
    return write_json(path, {"images": images, "annotations": annotations})


def rows_of(output):
    return {row["image_id"]: row for row in load_from_disk(str(output)).with_format("numpy")}


def test_a_karpathy_file_gives_captions_and_splits(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    convert_features([write_tsv(tmp_path / "a.tsv"), write_karpathy(tmp_path / "split.json")], tmp_path / "out")
    for split, ids in (("train", [7, 12]), ("validation", [391895])):
        rows = load_data(f"features:{tmp_path / 'out'}", split)
        assert list(rows["image_id"]) == ids
        assert rows[0]["captions"] == [f"A thing of {ids[0]}.", "Another"]
        assert rows[0]["visual_features"].shape[1] == 6


def test_annotated_images_without_features_are_listed(tmp_path):
    images = [image_of(image_id) for image_id in (*SIZES, 5, 6)]
    split = write_karpathy(tmp_path / "split.json", images)
    for path in (write_tsv(tmp_path / "a.tsv"), write_cocobu(tmp_path / "cocobu")):
        with fails_naming("2 images", "5, 6", "split.json"):
            convert_features([path, split], tmp_path / f"{path.name}-out")
        result = convert_features([path, split], tmp_path / f"{path.name}-out", skip_errors=True)
        assert [entry["image_id"] for entry in result.skipped] == [5, 6] and result.num_rows == 3


def test_images_without_annotations_are_left_out_and_listed(tmp_path):
    split = write_karpathy(tmp_path / "split.json", [image_of(12)])
    result = convert_features([write_tsv(tmp_path / "a.tsv"), split], tmp_path / "out")
    assert list(rows_of(tmp_path / "out")) == [12]
    assert [entry["image_id"] for entry in result.skipped] == ["7", "391895"]
    inputs = [write_tsv(tmp_path / "b.tsv"), write_coco(tmp_path / "captions.json", [12]), split]
    assert convert_features(inputs, tmp_path / "more").num_rows == 1


def test_flickr_features_are_named_by_file(tmp_path):
    names = (1007, 1012, 391896)
    images = [image_of(0, at, cocoid=None, filename=f"{name}.jpg", split="train") for at, name in enumerate(names)]
    cocobu = write_cocobu(tmp_path / "flickr")
    for image_id, name in zip(SIZES, names, strict=True):
        for part, suffix in (("att", "npz"), ("box", "npy")):
            folder = cocobu / f"cocobu_{part}"
            (folder / f"{image_id}.{suffix}").rename(folder / f"{name}.{suffix}")
    convert_features([cocobu, write_karpathy(tmp_path / "flickr30k.json", images)], tmp_path / "out")
    assert sorted(rows_of(tmp_path / "out")) == sorted(names)


FAULTS = {
    "no sentences": ({"sentences": []}, ["images[1]", "sentences"]),
    "another's id": ({"cocoid": 7}, ["images[1]", "cocoid is 7", "12"]),
    "twice": ({"cocoid": 7, "filename": "7.jpg"}, ["images[1]", "7", "images[0]"]),
}


@each_row("fault", FAULTS)
def test_a_broken_record_is_named_or_listed(fault, tmp_path):
    changes, facts = FAULTS[fault]
    path = write_karpathy(tmp_path / "split.json", [image_of(7), image_of(12, **changes), image_of(391895)])
    with fails_naming("split.json", *facts):
        Annotations([path], None)
    skipped = []
    assert len(Annotations([path], skipped).images) == 2
    assert [fact for fact in facts if fact not in skipped[0]["reason"]] == [] and len(skipped) == 1


def test_annotations_alone_have_no_features(tmp_path):
    with fails_naming("split.json", "features"):
        convert_features([write_karpathy(tmp_path / "split.json")], tmp_path / "out")
    with fails_naming("other.json", *ANNOTATION_FORMATS):
        Annotations([write_json(tmp_path / "other.json", {"cats": []})], None)


def test_a_split_must_be_known_of_every_image(tmp_path):
    files = write_karpathy(tmp_path / "split.json", [image_of(12)]), write_coco(tmp_path / "captions.json")
    with fails_naming("line 1", "--split"):
        convert_features([write_tsv(tmp_path / "a.tsv"), *files], tmp_path / "out")
    assert convert_features([tmp_path / "a.tsv", *files], tmp_path / "out", split="test").num_rows == 3
