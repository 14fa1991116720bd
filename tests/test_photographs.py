"""Photographs that cannot be read, in extract, train, evaluate and caption."""

import io
from pathlib import Path

import yaml
from datasets import Dataset, Features, List, Value
from datasets import Image as ImageFeature

from hf_ngsan.cli import main
from tests.commands.running import fails, prints
from tests.models.tiny_photos import photo, pixel_captioner
from tests.tasks.tiny import tiny_sections

COLUMNS = Features({"image_id": Value("int64"), "image": ImageFeature(), "captions": List(Value("string"))})


def encoded(seed: int) -> bytes:
    file = io.BytesIO()
    photo((40, 28), seed=seed).save(file, "PNG")
    return file.getvalue()


GOOD = {1: encoded(1), 2: encoded(2)}
BAD = {21: b"", 22: GOOD[1][: len(GOOD[1]) // 2], 23: b"no picture"}


def write_data(folder: Path, images: dict[int, bytes], captions=(("a red circle", "a blue square"),)) -> str:
    """Writes the same Parquet file of photographs for training and validation; returns the dataset's name."""
    folder.mkdir()
    rows = [
        {"image_id": key, "image": {"bytes": content, "path": None}, "captions": captions[key % len(captions)]}
        for key, content in images.items()
    ]
    for split in ("train", "validation"):
        Dataset.from_list(rows, features=COLUMNS).to_parquet(str(folder / f"{split}.parquet"))
    return f"images:{folder}"


def training(data: str, folder: Path) -> list:
    """Trains a tiny captioner with a vision encoder from pixels."""
    sections = tiny_sections(
        folder / "run",
        data={"spec": data, "image_size": 24},
        training={"epochs": 1, "batch_size": 4},
        model={"vision_config": pixel_captioner().config.vision_config.to_dict()},
    )
    (folder / "photographs.yaml").write_text(yaml.safe_dump(sections))
    return ["train", "--config", folder / "photographs.yaml", "augmentation.flip=0.5", "augmentation.smallest_crop=0.5"]


def test_photographs_that_cannot_be_read_are_skipped_or_refused_by_name(capsys, captioner, vision, tmp_path):
    data = write_data(tmp_path / "data", {1: GOOD[1], **BAD, 2: GOOD[2]})
    extraction = ["extract", "--images", data, "--backbone", vision, "--split", "train", "--num-workers", "0"]
    extraction += ["--output", tmp_path / "features"]
    assert "image_id 21" in fails(capsys, *extraction)
    printed = prints(capsys, *extraction, "--skip-errors").splitlines()
    assert "features of 2 images" in printed[-2] and "3 skipped" in printed[-2]
    skipped = [line for line in printed if line.startswith("skipped: ")]
    assert [f"image_id {key}" in line for key, line in zip(BAD, skipped, strict=True)] == [True] * 3
    message = fails(capsys, *training(data, tmp_path))
    assert any(f"image_id {key}" in message for key in BAD)
    assert not (tmp_path / "run" / "best").exists()
    message = fails(capsys, "evaluate", "--model", captioner, "--data", data, "--split", "train")
    assert any(f"image_id {key}" in message for key in BAD)
    places = []
    for key, content in {1: GOOD[1], **BAD}.items():
        places.append(str(tmp_path / f"{key}.jpg"))
        Path(places[-1]).write_bytes(content)
    assert "21.jpg" in fails(capsys, "caption", "--model", captioner, *places)
    assert main(["caption", "--model", str(captioner), "--skip-errors", *places]) == 0
    output, errors = capsys.readouterr()
    assert [bool(line.split("\t")[1]) for line in output.splitlines()] == [True, False, False, False]
    assert [f"{key}.jpg" in line for key, line in zip(BAD, errors.splitlines()[-4:], strict=False)] == [True] * 3
    assert "3 of 4" in errors.splitlines()[-1]
