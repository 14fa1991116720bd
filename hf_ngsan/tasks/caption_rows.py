"""Rows for training and evaluation of captioners.

```python
rows = load_rows("features:DIR", "test", limit=100)
rows = rows_for(model, processor, rows, "features:DIR")  # the columns that the model reads, checked
```
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data import DataError, load_data
from ..data.contract import ARRAY_COLUMNS
from ..data.images.loading import check_captions
from ..loading.models import is_guest, reads_images
from ..loading.provenance import check_provenance
from ..training.config import DataSettings, setting
from ..training.run import load_split, short_checksum
from ..visualization import check_matplotlib, save_figure
from ..visualization.plots import FIGURE_SIDE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptionDataSettings(DataSettings):
    """Words and captions for training."""

    min_word_count: int = setting(5, "words seen less often in the training captions are unknown words", minimum=1)
    captions_per_image: int = setting(5, "captions drawn per image and epoch; an image is encoded once", minimum=1)
    max_caption_length: int = setting(20, "longest training caption in tokens; longer ones are cut", minimum=2)


@dataclass(frozen=True)
class CaptioningDataSettings(CaptionDataSettings):
    """Images, words and captions for training."""

    image_size: int | None = setting(
        None, "height and width in pixels that images are made; null = those of the backbone, or else 224", minimum=8
    )


COLUMNS_READ = ("image_id", "file_name", "image", "frames", *ARRAY_COLUMNS)
"""Columns that captioners read, and those that name the image in errors."""


def load_rows(
    spec: str, split: str, with_captions: bool = True, limit: int | None = None, for_training: bool = False
) -> Dataset:
    """Returns one split of a dataset, or its first `limit` rows.

    For a missing split `validation` it returns the rows that training sets aside, unless they are loaded
    `for_training`.

    Raises:
        DataError: the data cannot be used, have no images, or no captions although `with_captions` is True.
    """
    rows = load_data(spec, split) if for_training else load_split(partial(load_data, spec), split, spec)
    if "image_id" not in rows.column_names:
        raise DataError(f"{spec}, split {split}, has no images (no column 'image_id'); give a dataset of images.")
    if limit is not None:
        rows = rows.take(limit)
    if with_captions:
        check_captions(rows, spec, split)
    return rows


def visual_feature_size(rows: Dataset) -> int | None:
    """Returns the dimension D of the features of a dataset; `None` if it has images only."""
    if "visual_features" not in rows.column_names:
        return None
    return numpy.asarray(rows.select_columns("visual_features")[0]["visual_features"]).shape[-1]


def only_features(rows: Dataset) -> Dataset:
    """Returns the rows without images, which would be decoded in vain."""
    return rows.remove_columns("image") if "image" in rows.column_names else rows


def rows_for(
    model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str, keep_images: bool = False
) -> Dataset:
    """Returns the columns that a captioner reads: images for one with a vision encoder, if present, else features.

    Args:
        model, processor: the captioner.
        rows: rows of [`load_rows`].
        data: name of the data in messages.
        keep_images: whether to keep images beside features, for figures.

    Raises:
        DataError: the features are missing, or not of the kind that the model takes.
        ValueError: the features are of another backbone.
    """
    for column in ("image", "frames"):
        if reads_images(model.config) and column in rows.column_names:
            return rows.remove_columns([name for name in ARRAY_COLUMNS if name in rows.column_names])
    if is_guest(model.config):
        raise DataError(
            f"{data} has no images, which a {model.config.model_type} model needs; give a dataset with images."
        )
    size = visual_feature_size(rows)
    if size is None:
        raise DataError(
            f"{data} has images and no visual_features, and this model has no vision encoder; train one with "
            "model.vision_config, give this one the encoder of its features with hf-ngsan attach-vision, or extract "
            "features with hf-ngsan extract."
        )
    members: Any = getattr(model, "members", [model])
    for member in members:
        check_features(member.config, rows, size, data)
        check_provenance(member, processor, rows, data)
    return rows if keep_images else only_features(rows)


def check_features(config: Any, rows: Dataset, dimension: int, data: str) -> None:
    """Raises a DataError unless features have the dimension of a model, and the size of its grid if it has one."""
    expected = config.visual_feature_size
    if expected != dimension:
        images = "" if config.vision_config is None else ", or data with images, such as scenes:images=true"
        raise DataError(
            f"The feature dimension of {data} is {dimension}, but the model takes visual_feature_size="
            f"{expected}; use a model or features of the same dimension{images}."
        )
    grid = getattr(config, "grid_size", None)
    if grid is not None and getattr(config, "order_of_tokens_counts", False):
        number = len(rows.select_columns("visual_features")[0]["visual_features"])
        if number != grid[0] * grid[1]:
            raise DataError(
                f"The first image of {data} has {number} visual tokens, but the model takes a grid of {grid[0]} x "
                f"{grid[1]} cells; change model.grid_size, or take features of such a grid."
            )


def captions_identity(rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> dict:
    """Returns JSON values that identify training captions, if there are any, and the vocabulary of their model."""
    texts = [caption for texts in rows["captions"] for caption in texts] if "captions" in rows.column_names else []
    return {
        "number of images": len(rows),
        "text of the captions": short_checksum(texts),
        "vocabulary": short_checksum(sorted(tokenizer.get_vocab().items())),
    }


def features_identity(model: PreTrainedModel) -> dict:
    """Returns JSON values that identify the features that a model is trained on; none if their origin is unknown."""
    provenance = getattr(model.config, "features_provenance", None)
    key = "backbone or preprocessing of its features"
    return {} if provenance is None else {key: short_checksum(provenance["checksums"])}


def check_drawable(rows: Dataset, data: str, split: str) -> None:
    """Raises a DataError unless the attention to rows of [`rows_for`] can be drawn over their images."""
    columns = rows.column_names
    if "image" not in columns or ("visual_features" in columns and "visual_boxes" not in columns):
        missing = "visual_boxes" if "image" in columns else "images"
        raise DataError(
            f"--save-attention draws over the parts of images, and {data}, split {split}, has no {missing}; give a "
            "dataset with images, such as scenes:images=true, and boxes of its features, or image files."
        )


def prepare_figures(folder: str | Path) -> dict[str, Any]:
    """Makes a folder for figures; returns the arguments with which a pipeline returns their contents.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        FileExistsError: the folder is a file.
    """
    check_matplotlib()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {"return_attention": True, "attention_side": FIGURE_SIDE}


def save_attention(answer: dict, name: str, path: Path, plot: Callable[..., Any], arguments: tuple[str, ...]) -> bool:
    """Saves the figure that `plot` makes of parts of an answer; returns False, and logs why, if it has none."""
    if not answer["words"] or "image" not in answer:
        missing = "no image, or features without boxes" if answer["words"] else "no words"
        logger.warning("There is no figure of %s, which has %s.", name, missing)
        return False
    figure = plot(*(answer[part] for part in arguments))
    save_figure(figure, path)
    figure.clear()  # its parts refer to each other, so they would stay in memory for long
    return True
