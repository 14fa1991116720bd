"""Regions of users' boxes: files of every format, a detector as a callable, captioners of such regions."""

import json

import numpy as np
import pandas
import pytest
import torch
from datasets import load_from_disk

from hf_ngsan.data import DataError
from hf_ngsan.extraction import ExtractionError, list_images
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.loading.provenance import remember_features
from hf_ngsan.models.image_processing_captioning import load_image
from tests.commands.running import fails, prints
from tests.extraction.tiny import extract, mean_in_box, rows_of, tiny_processor, tiny_vision, write_photos
from tests.models import tiny
from tests.tables import each_row

# For photographs 000001.png (31 x 21 pixels) and 000002.png (32 x 22); 000003.png (33 x 23) has no boxes.
BOXES = [
    (1, [3, 2, 21, 12.5], "dog", 0.25),
    (1, [0, 0, 31, 21], "cat", 0.75),
    (2, [4, 4, 4.5, 5], "cat", 0.5),  # smaller than a cell
]
NAMES = ["dog", "cat"]


def write_boxes(folder, kind, boxes=BOXES):
    """Boxes in a file or folder, as a tool writes them."""
    folder.mkdir(parents=True)
    tables = {"csv": pandas.DataFrame.to_csv, "parquet": pandas.DataFrame.to_parquet}
    if kind in tables:
        rows = [{"image": f"{image:06d}.png", "label": name, "score": score} for image, _, name, score in boxes]
        for row, (_, box, _, _) in zip(rows, boxes, strict=True):
            row |= {"box": box} if kind == "parquet" else dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))
        tables[kind](pandas.DataFrame(rows), folder / f"boxes.{kind}", index=False)
        return folder / f"boxes.{kind}"
    if kind == "yolo":
        (folder / "classes.txt").write_text("\n".join(NAMES))
        for image, (x1, y1, x2, y2), name, score in boxes:
            width, height = 30 + image, 20 + image
            center = f"{(x1 + x2) / 2 / width} {(y1 + y2) / 2 / height}"
            with open(folder / f"{image:06d}.txt", "a") as file:
                file.write(f"{NAMES.index(name)} {center} {(x2 - x1) / width} {(y2 - y1) / height} {score}\n")
        return folder
    rows = [
        {"image_id": image, "category_id": NAMES.index(name), "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
        for image, (x1, y1, x2, y2), name, score in boxes
    ]
    for row in rows if kind == "coco" else ():
        row["image_id"] = 4 - row["image_id"]  # ids differ from those of the photographs, so names are used
    images = [{"id": 4 - n, "file_name": f"{n:06d}.png", "width": 30 + n, "height": 20 + n} for n in (1, 2, 3)]
    categories = [{"id": place, "name": name} for place, name in enumerate(NAMES)]
    content = {"images": images, "annotations": rows, "categories": categories}
    (folder / "boxes.json").write_text(json.dumps(content if kind == "coco" else rows))
    return folder / "boxes.json"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"), 3)


def vision_of_boxes(**fields):
    return tiny_vision(**{"kind": "boxes", "grid_size": None, **fields})


def check_rows(photos, output, model, with_image=True, names=NAMES):
    """Compares the rows of an extraction with a loop over photographs and boxes."""
    for image, row in enumerate(rows_of(output), 1):
        image_boxes = sorted((box for box in BOXES if box[0] == image), key=lambda box: -box[3])
        rest = with_image or not image_boxes
        assert row["objects"] == [names[NAMES.index(name)] for _, _, name, _ in image_boxes] + [""] * rest
        assert row["object_scores"] == [score for *_, score in image_boxes] + [1.0] * rest
        size = np.array([30 + image, 20 + image] * 2)
        boxes = np.array([box for _, box, _, _ in image_boxes] + [size * [0, 0, 1, 1]] * rest) / size
        np.testing.assert_allclose(row["visual_boxes"], boxes, atol=1e-5)
        pixels = tiny_processor()([load_image(photos / row["file_name"])], return_tensors="pt")["pixel_values"]
        feature_map = model.backbone(pixels).feature_maps[0][0].detach().numpy()
        expected = [mean_in_box(feature_map, box) for box in boxes]
        np.testing.assert_allclose(row["visual_features"], expected, atol=1e-4)


@each_row("kind", ["coco", "results", "csv", "parquet", "yolo"])
def test_regions_are_means_within_the_boxes_of_a_file(photos, tmp_path, kind):
    model = vision_of_boxes(with_whole_image=kind != "csv")
    images = list_images(photos).with_boxes(write_boxes(tmp_path / "boxes", kind), model.config)
    extract(images, tmp_path / "out", model=model, dtype="float32")
    check_rows(photos, tmp_path / "out", model, kind != "csv", ["0", "1"] if kind == "results" else NAMES)
    assert [note for note in images.notes if "1 images have no box" in note and "000003.png" in note]


@pytest.mark.parametrize("as_lists", [False, True])
def test_a_detector_is_a_callable(photos, tmp_path, as_lists):
    def detector(pictures):
        actual = [[box for box in BOXES if box[0] == picture.width - 30] for picture in pictures]
        triples = [
            (torch.tensor([b[1] for b in image_boxes]), [b[3] for b in image_boxes], [b[2] for b in image_boxes])
            for image_boxes in actual
        ]
        return tuple(zip(*triples, strict=True)) if as_lists else triples

    model = vision_of_boxes(grid_size=[2, 2])
    extract(photos, tmp_path / "cells", model=model, detector=detector)
    assert [len(row["objects"]) for row in rows_of(tmp_path / "cells")] == [2 + 4, 1 + 4, 1 + 4]
    model = vision_of_boxes()
    extract(photos, tmp_path / "out", model=model, detector=detector, dtype="float32")
    check_rows(photos, tmp_path / "out", model, with_image=False)
    with pytest.raises(ExtractionError):
        extract(photos, tmp_path / "none", model=model)


def test_boxes_that_do_not_fit_are_named(photos, tmp_path):
    model = vision_of_boxes()
    beyond, flat = (1, [40, 2, 50, 9], "dog", 0.9), (2, [4, 4, 4, 9], "dog", 0.9)
    for number, (kind, wrong) in enumerate({"coco": beyond, "results": flat, "csv": flat, "yolo": beyond}.items()):
        file = write_boxes(tmp_path / f"wrong{number}", kind, [*BOXES, wrong])
        with pytest.raises(DataError, match=rf"1 boxes .*{wrong[0]:06d}\.png"):
            list_images(photos).with_boxes(file, model.config)
        images = list_images(photos).with_boxes(file, model.config, skip_errors=True)
        names, output = ["0", "1"] if kind == "results" else NAMES, tmp_path / f"out{number}"
        extract(images, output, model=model, dtype="float32")
        check_rows(photos, output, model, with_image=False, names=names)
    late = list_images(photos).with_boxes(write_boxes(tmp_path / "late", "csv", [*BOXES, beyond]), model.config)
    with pytest.raises(DataError, match=r"000001\.png"):  # only the photograph has its size
        extract(late, tmp_path / "late-out", model=model)
    with pytest.raises(ExtractionError, match=r"000001\.png"):  # the folder has features of other boxes
        extract(late, tmp_path / "out2", model=model, dtype="float32")
    elsewhere = write_boxes(tmp_path / "elsewhere", "results", [(77, *box[1:]) for box in BOXES])
    with pytest.raises(DataError, match="77"):
        list_images(photos).with_boxes(elsewhere, model.config)
    unnumbered = write_photos(tmp_path / "unnumbered", 2)
    for place, file in enumerate(sorted(unnumbered.iterdir())):
        file.rename(unnumbered / f"{'ab'[place]}.png")
    with pytest.raises(DataError, match=r"boxes\.json: 2 "):  # ids start at 1
        list_images(unnumbered).with_boxes(write_boxes(tmp_path / "counted", "results"), model.config)
    more = write_boxes(tmp_path / "more", "results", [*BOXES, (77, *BOXES[0][1:])])
    assert any("1 other" in note and "77" in note for note in list_images(photos).with_boxes(more, model.config).notes)


def test_a_captioner_of_boxes_captions_photographs_as_their_features(photos, tmp_path, capsys):
    vision_of_boxes(with_whole_image=True).save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    file = write_boxes(tmp_path / "boxes", "csv")
    features, attached = tmp_path / "features", tmp_path / "attached"
    words = ["extract", "--images", photos, "--boxes", file, "--backbone", tmp_path / "vision", "--dtype", "float32"]
    assert "000003.png" in prints(capsys, *words, "--output", features, "--num-workers", 0)
    captioner = tiny.tiny_captioner(1, visual_feature_size=8)
    captioner.lm_head.bias.data[captioner.config.eos_token_id] -= 4  # every caption has words
    remember_features(captioner, load_from_disk(str(features)), "features")
    captioner.save_pretrained(tmp_path / "captioner")
    tiny.tiny_processor().save_pretrained(tmp_path / "captioner")
    words = ["attach-vision", "--model", tmp_path / "captioner", "--backbone", tmp_path / "vision"]
    assert "--boxes" in prints(capsys, *words, "--output", attached)
    rows, paths = rows_of(features), sorted(photos.glob("*.png"))
    target = [
        captioner.generate(**{name: torch.tensor(row[name])[None] for name in ("visual_features", "visual_boxes")})
        for row in rows
    ]
    words = ["caption", "--model", attached, *paths]
    pipeline = CaptioningPipeline(type(captioner).from_pretrained(attached))
    texts = [pipeline.processor.decode(ids[0], skip_special_tokens=True).strip() for ids in target]
    assert len({*texts}) > 1
    printed = prints(capsys, *words, "--boxes", file)
    assert [line.split("\t")[1] for line in printed.splitlines()] == texts
    assert "boxes" in fails(capsys, *words)
    boxes = [[box for image, box, *_ in reversed(BOXES) if image == number] for number in (1, 2, 3)]  # best first
    arguments = [{"image": str(path), "boxes": image_boxes} for path, image_boxes in zip(paths, boxes, strict=True)]
    assert [answer[0]["generated_text"] for answer in pipeline(arguments, batch_size=3)] == texts
    inputs = pipeline.processor(images=[str(path) for path in paths], boxes=boxes)
    sequences = pipeline.model.generate(**inputs)
    assert [text.strip() for text in pipeline.processor.batch_decode(sequences, skip_special_tokens=True)] == texts
