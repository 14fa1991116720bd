"""Photographs of every mode, and bad ones, on every road that the README names: extract, train, evaluate, caption."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from datasets import Dataset, Features, List, Value
from datasets import Image as ImageFeature
from PIL import ExifTags, Image

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.loading.models import save_model
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_vision import VisionModel
from tests.commands.running import fails, prints
from tests.models.tiny_photos import photo, pixel_captioner, pixel_processor
from tests.tasks.tiny import tiny_sections

PHOTO = photo((40, 28), seed=3)
COLUMNS = Features({"image_id": Value("int64"), "image": ImageFeature(), "captions": List(Value("string"))})


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned() -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return encoded(PHOTO.transpose(Image.Transpose.ROTATE_90), exif=exif)


def of_16_bits() -> bytes:
    return encoded(Image.fromarray(np.asarray(PHOTO.convert("L")).astype(np.uint16) * 257))


GOOD = {
    1: encoded(PHOTO),
    2: encoded(PHOTO.convert("L")),
    3: of_16_bits(),
    4: encoded(PHOTO.quantize(32)),
    5: encoded(PHOTO.convert("RGBA")),
    6: turned(),
    7: encoded(PHOTO.convert("CMYK"), "TIFF"),
}
SAME_AS = {3: 2, 4: 1, 5: 1, 6: 1, 7: 1}
"""The photographs whose pixels are those of another one."""

NAMES = {1: "rgb.png", 2: "grey.png", 3: "deep.png", 4: "palette.png", 5: "alpha.png", 6: "turned.png", 7: "cmyk.tiff"}
BAD = {21: b"", 22: GOOD[1][: len(GOOD[1]) // 2], 23: b"no picture"}


def write_data(folder: Path, images: dict[int, bytes], without_captions: tuple[int, ...] = ()) -> str:
    """Writes the same Parquet file of photographs for training and validation; returns the dataset's name."""
    folder.mkdir()
    rows = [
        {
            "image_id": key,
            "image": {"bytes": content, "path": None},
            "captions": [] if key in without_captions else ["a red circle", "a blue square"],
        }
        for key, content in images.items()
    ]
    for split in ("train", "validation"):
        Dataset.from_list(rows, features=COLUMNS).to_parquet(str(folder / f"{split}.parquet"))
    return f"images:{folder}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioner")
    save_model(pixel_captioner(), pixel_processor(), folder)
    return folder


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vision encoder of that captioner."""
    folder = tmp_path_factory.mktemp("vision")
    encoder = pixel_captioner().model.vision
    assert isinstance(encoder, VisionModel)
    encoder.save_pretrained(folder)
    CaptioningImageProcessor(size={"height": 24, "width": 32}).save_pretrained(folder)
    return folder


def extraction(data: str, vision: Path, output: Path) -> list:
    options = ["--split", "train", "--output", output, "--num-workers", "0"]
    return ["extract", "--images", data, "--backbone", vision, *options]


def training(data: str, folder: Path) -> list:
    """The training of a tiny captioner with a vision encoder of its own, from pixels."""
    sections = tiny_sections(
        folder / "run",
        data={"spec": data, "image_size": 24},
        training={"epochs": 1, "batch_size": 4},
        model={"vision_config": pixel_captioner().config.vision_config.to_dict()},
    )
    (folder / "photographs.yaml").write_text(yaml.safe_dump(sections))
    return ["train", "--config", folder / "photographs.yaml", "augmentation.flip=0.5", "augmentation.smallest_crop=0.5"]


def captions_of(capsys: pytest.CaptureFixture, *arguments: object) -> list[list[str]]:
    return [line.split("\t") for line in prints(capsys, "caption", *arguments).splitlines()]


def test_photographs_of_every_mode_are_read_on_every_road(capsys, model, vision, tmp_path):
    data, places = write_data(tmp_path / "data", GOOD), []
    for key, content in GOOD.items():
        places.append(tmp_path / NAMES[key])
        places[-1].write_bytes(content)
    assert f"features of {len(GOOD)} images" in prints(capsys, *extraction(data, vision, tmp_path / "features"))
    rows = {row["image_id"]: row for row in load_data(f"features:{tmp_path / 'features'}", "train")}
    for key, other in SAME_AS.items():
        assert (rows[key]["width"], rows[key]["height"]) == PHOTO.size
        close = {"atol": 0.05} if key == 4 else {"atol": 2e-3}  # a palette has fewer colours
        np.testing.assert_allclose(rows[key]["visual_features"], rows[other]["visual_features"], **close)
    of_files = [caption for _, caption in captions_of(capsys, "--model", model, *places)]
    of_rows = captions_of(capsys, "--model", model, "--data", data, "--split", "train")
    assert of_rows == [[str(key), caption] for key, caption in zip(GOOD, of_files, strict=True)]
    results = tmp_path / "captions.json"
    prints(capsys, "evaluate", "--model", model, "--data", data, "--split", "train", "--output", results)
    assert [entry["caption"] for entry in json.loads(results.read_text())] == of_files
    prints(capsys, *training(data, tmp_path))


def test_photographs_that_cannot_be_read_are_skipped_or_refused_by_name(capsys, model, vision, tmp_path):
    data = write_data(tmp_path / "data", {1: GOOD[1], **BAD, 2: GOOD[2]})
    assert "image_id 21" in fails(capsys, *extraction(data, vision, tmp_path / "features"))
    printed = prints(capsys, *extraction(data, vision, tmp_path / "features"), "--skip-errors").splitlines()
    assert "features of 2 images" in printed[-2] and "3 skipped" in printed[-2]
    skipped = [line for line in printed if line.startswith("skipped: ")]
    assert [f"image_id {key}" in line for key, line in zip(BAD, skipped, strict=True)] == [True] * 3
    message = fails(capsys, *training(data, tmp_path))
    assert any(f"image_id {key}" in message for key in BAD)
    assert not (tmp_path / "run" / "best").exists()
    message = fails(capsys, "evaluate", "--model", model, "--data", data, "--split", "train")
    assert any(f"image_id {key}" in message for key in BAD)
    places = []
    for key, content in {1: GOOD[1], **BAD}.items():
        places.append(str(tmp_path / f"{key}.jpg"))
        Path(places[-1]).write_bytes(content)
    assert "21.jpg" in fails(capsys, "caption", "--model", model, *places)
    assert main(["caption", "--model", str(model), "--skip-errors", *places]) == 0
    output, errors = capsys.readouterr()
    assert [bool(line.split("\t")[1]) for line in output.splitlines()] == [True, False, False, False]
    assert [f"{key}.jpg" in line for key, line in zip(BAD, errors.splitlines()[-4:], strict=False)] == [True] * 3
    assert "3 of 4" in errors.splitlines()[-1]


def test_photographs_without_captions_are_left_out_and_counted(vision, tmp_path, capsys):
    data = write_data(tmp_path / "data", GOOD, without_captions=(2, 5))
    with pytest.warns(UserWarning, match="2 of 7"):
        assert "features of 5 images" in prints(capsys, *extraction(data, vision, tmp_path / "features"))
