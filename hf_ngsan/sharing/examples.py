"""Example pictures for a card, with the model's captions."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ..data.errors import DataError
from ..models.image_processing_captioning import load_image
from ..tasks.caption_rows import COLUMNS_READ, load_rows, rows_for
from ..tasks.captioning_generation import caption_images

EXAMPLES = "examples"
NUMBER = 4
MAX_SIDE = 384
"""Longest side of a picture in pixels."""


def write_examples(model: PreTrainedModel, processor: Any, spec: str, folder: Path) -> dict[str, str]:
    """Writes the first images of a dataset's test split, reduced, and returns captions by path in the folder.

    Raises:
        DataError: the dataset cannot be read or has no images.
    """
    rows = load_rows(spec, "test", with_captions=False, limit=NUMBER)
    rows = rows_for(model, processor, rows, spec, keep_images=True)
    if "image" not in rows.column_names:
        raise DataError(f"{spec} has no images for the card; name a dataset with images, such as scenes:images=true.")
    read = rows.select_columns([name for name in COLUMNS_READ if name in rows.column_names])
    captions = caption_images(model, processor, read, map(str, rows["image_id"]))
    found = {}
    for row, captioned in zip(rows, captions, strict=True):
        image = load_image(row["image"])
        image.thumbnail((MAX_SIDE, MAX_SIDE))
        file = folder / EXAMPLES / f"{row['image_id']}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)
        found[f"{EXAMPLES}/{file.name}"] = captioned.caption or ""
    return found
