"""Rows for captioners and dual encoders: loading, the columns that a model reads, and image augmentation."""

import logging
import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from datasets import Dataset
from PIL import Image, ImageEnhance
from transformers import PreTrainedModel, PreTrainedTokenizerFast, ProcessorMixin

from ..data import DataError, build_tokenizer, load_data, shuffle_buffer_of
from ..data.contract import ARRAY_COLUMNS, with_arrays
from ..data.readers import VALIDATION
from ..data.sampler import generator_of
from ..data.saved import FeatureCopies, copy_folder, load_saved
from ..extraction.extract import extract_features
from ..extraction.image_list import SKIP_ERRORS, ExtractionError, ImageChange, list_rows
from ..io.folders import is_empty
from ..loading.models import is_guest, reads_images
from ..loading.provenance import check_provenance
from ..models.images import load_image
from ..models.modeling_vision import VisionModel
from ..training.config import ConfigError
from ..training.run import load_split, short_checksum
from ..visualization import check_matplotlib, save_figure
from ..visualization.figures import FIGURE_SIDE
from .settings import AugmentationSettings, CaptionDataSettings

logger = logging.getLogger(__name__)

FEATURES, TRAIN = "features", "train"  # subfolders of the folder of a run


def new_tokenizer(captions: Iterable[str], data: CaptionDataSettings) -> PreTrainedTokenizerFast:
    """Builds the tokenizer of training captions."""
    return build_tokenizer(
        captions,
        min_count=data.min_word_count,
        max_length=max(64, data.max_caption_length),
        units=data.tokenizer,
        language=data.language,
        vocab_size=data.max_subwords,
    )


COLUMNS_READ = ("image_id", "file_name", "image", "frames", "video", *ARRAY_COLUMNS)  # names are for errors


def load_rows(
    spec: str, split: str, with_captions: bool = True, limit: int | None = None, for_training: bool = False
) -> Dataset:
    """Returns one split of a dataset, or its first `limit` rows; checks that it has images and, if needed, captions."""
    rows = load_data(spec, split) if for_training else load_split(partial(load_data, spec), split, spec)
    if "image_id" not in rows.column_names:
        raise DataError(f"{spec}, split {split}, has no images (no column 'image_id'); give a dataset of images.")
    if limit is not None:
        rows = rows.take(limit)
    if with_captions and "captions" not in rows.column_names:
        raise DataError(
            f"{spec}, split {split}, has no column 'captions' for training and evaluation; images: reads captions"
            " from metadata.csv, or from the columns in captions=COLUMN+COLUMN."
        )
    return rows


def visual_feature_size(rows: Dataset) -> int | None:
    """Returns the feature dimension D of a dataset; `None` if it has images only."""
    if "visual_features" not in rows.column_names:
        return None
    return np.asarray(rows.select_columns("visual_features")[0]["visual_features"]).shape[-1]


def only_features(rows: Dataset) -> Dataset:
    """Returns the rows without their images, which would be decoded needlessly."""
    return rows.remove_columns("image") if "image" in rows.column_names else rows


def rows_for(
    model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str, keep_images: bool = False
) -> Dataset:
    """Returns the columns that a captioner reads: images if present and it has a vision encoder, else features."""
    for column in ("image", "frames", "video"):
        if reads_images(model.config) and column in rows.column_names:
            return rows.remove_columns([name for name in ARRAY_COLUMNS if name in rows.column_names])
    if is_guest(model.config):
        raise DataError(f"{data} has no images; a {model.config.model_type} model needs them.")
    size = visual_feature_size(rows)
    if size is None:
        raise DataError(
            f"{data} has images and no visual_features, and this model has no vision encoder; train one with "
            "model.vision_config, or see hf-ngsan attach-vision and hf-ngsan extract."
        )
    members: Any = getattr(model, "members", [model])
    for member in members:
        expected = member.config.visual_feature_size
        if expected != size:
            raise DataError(
                f"The feature dimension of {data} is {size}, but the model has visual_feature_size={expected}; use a "
                "model or features of the same dimension, or, for a model with a vision encoder, data with images."
            )
        check_provenance(member, processor, rows, data)
    return rows if keep_images else only_features(rows)


def captions_identity(model: PreTrainedModel, processor: Any, rows: Dataset) -> dict:
    texts = [caption for texts in rows["captions"] for caption in texts] if "captions" in rows.column_names else []
    return {
        "number of images": len(rows),
        "text of the captions": short_checksum(texts),
        "vocabulary": short_checksum(sorted(processor.tokenizer.get_vocab().items())),
        **features_identity(model),
    }


def features_identity(model: PreTrainedModel) -> dict:
    provenance = getattr(model.config, "features_provenance", None)
    key = "backbone or preprocessing of its features"
    return {} if provenance is None else {key: short_checksum(provenance["checksums"])}


def check_drawable(rows: Dataset, data: str, split: str) -> None:
    """Raises a DataError if the attention to rows of [`rows_for`] cannot be drawn over their images."""
    columns = rows.column_names
    if "image" not in columns or ("visual_features" in columns and "visual_boxes" not in columns):
        missing = "visual_boxes" if "image" in columns else "images"
        raise DataError(
            f"--save-attention draws over parts of images, and {data}, split {split}, has no {missing}; give a dataset "
            "such as scenes:images=true, or image files."
        )


def prepare_figures(folder: str | Path) -> dict[str, Any]:
    """Makes a folder for figures; returns the arguments that make a pipeline return the contents of figures."""
    check_matplotlib()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {"return_attention": True, "attention_side": FIGURE_SIDE}


def save_attention(answer: dict, name: str, path: Path, plot: Callable[..., Any], arguments: tuple[str, ...]) -> bool:
    """Saves the figure that `plot` draws from parts of an answer; returns False and logs why if parts are missing."""
    if not answer["words"] or not {"image", "frames"} & answer.keys():
        missing = "no image, or features without boxes" if answer["words"] else "no words"
        logger.warning("There is no figure of %s: it has %s.", name, missing)
        return False
    figure = plot(*(answer[part] for part in arguments))
    save_figure(figure, path)
    figure.clear()  # its parts reference each other, so they would stay in memory for long
    return True


SIDE = re.compile(r"\b(left|right|leftmost|rightmost)\b", re.IGNORECASE)
JITTERED = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


class ImageAugmentation:
    """Changes image and boxes of a row, depending only on the seed, the epoch and `image_id`; captions stay true."""

    def __init__(self, settings: AugmentationSettings, seed: int = 0) -> None:
        self.settings, self.seed = settings, seed

    def __call__(self, row: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        settings, changed = self.settings, dict(row)
        random = generator_of(self.seed, epoch, row.get("image_id"))
        changed["image"] = load_image(row["image"], f"the image of image_id {row.get('image_id')}")
        says_sides = any(SIDE.search(caption) for caption in row.get("captions") or ())
        if random.random() < settings.flip and not says_sides:
            changed = mirrored_row(changed)
        if settings.smallest_crop < 1:
            changed = cropped(changed, crop_box(changed["image"].size, settings.smallest_crop, random))
        if settings.color_jitter:
            for enhance in JITTERED:
                factor = random.uniform(1 - settings.color_jitter, 1 + settings.color_jitter)
                changed["image"] = enhance(changed["image"]).enhance(factor)
        return changed


def augmentation_of(config: Any, columns: Sequence[str]) -> ImageAugmentation | FeatureCopies | None:
    """Returns the augmentation of a training config for rows with some columns, or None."""
    settings, spec, seed = config.augmentation, config.data.spec, config.training.seed
    if settings.changes_images and "visual_features" in columns:
        raise ConfigError(f"the section augmentation needs images, but the model is trained on the features of {spec}.")
    if not settings.feature_copies:
        return ImageAugmentation(settings, seed) if settings.changes_images else None
    if not spec.startswith("features:"):
        raise ConfigError(f"augmentation.feature_copies needs features:DIR (hf-ngsan extract --copies), not {spec}.")
    return FeatureCopies(spec.partition(":")[2], config.data.train_split, seed)


def change_of_copy(settings: AugmentationSettings, seed: int, number: int) -> ImageChange:
    """Returns the image change for one of the feature copies."""
    description = {name: getattr(settings, name) for name in ("smallest_crop", "flip", "color_jitter")}
    change = partial(ImageAugmentation(settings, seed), epoch=number)
    return ImageChange(change, {**description, "seed": seed, "copy": number})


def encode_once(
    task: Any, model: Any, processor: Any, rows: Dataset, validation_rows: Dataset | None, accelerator: Accelerator
) -> tuple[Dataset, Dataset | None]:
    """Returns training and validation rows with features in place of images; a frozen backbone encodes them once.

    The features are stored in the folder of the run, and used again after a restart if images, backbone and changes are
    the same. Teachers read the images themselves, because each of them may have a different backbone.
    """
    config, folder = task.config, task.config.output_dir / FEATURES
    settings, seed = config.augmentation, config.training.seed
    vision: Any = getattr(model.base_model, "vision", None)
    copies = (settings.copies or 0) if settings.changes_images else 0
    is_frozen = isinstance(vision, VisionModel) and vision.config.frozen and "image" in (rows.column_names or ())
    is_kept = settings.copies is not None and shuffle_buffer_of(rows) is None  # streams may have any length
    is_encoded = is_frozen and is_kept and not getattr(config.training, "teachers", ())
    if accelerator.is_main_process:
        earlier = [*copy_folder(folder / TRAIN, 0).parent.glob("*")]
        for old in [copy for copy in earlier if int(copy.name) > copies] if is_encoded else [folder]:
            shutil.rmtree(old, ignore_errors=True)
    if not is_encoded:
        return rows, validation_rows

    def encoded(rows: Dataset, folder: Path, change: ImageChange | None = None) -> Dataset:
        images, is_new = list_rows(rows, config.data.spec), is_empty(folder)
        dtype = "float16" if vision.config.feature_dtype == "float16" else "float32"
        options: Any = {"dtype": dtype, "num_workers": config.data.num_workers, "accelerator": accelerator}
        accelerator.wait_for_everyone()
        try:
            extract_features(vision, processor.image_processor, images, folder, change=change, **options)
        except ExtractionError as error:
            if is_new or accelerator.num_processes > 1:  # the other processes wait for the first one
                advice = "" if is_new else f" Delete {folder}."
                raise DataError(f"{str(error).removesuffix(SKIP_ERRORS).strip()}{advice}") from error
            shutil.rmtree(folder)  # it has features of another backbone, other changes or older images
            return encoded(rows, folder, change)
        features = load_saved(str(folder), None)
        places = {image_id: place for place, image_id in enumerate(features["image_id"])}
        features = features.select([places[image_id] for image_id in rows["image_id"]])
        for name in [name for name in rows.column_names if name not in (*features.column_names, "image")]:
            features = features.add_column(name, rows[name][:], feature=rows.features[name])
        return with_arrays(features)

    logger.info(
        "The frozen backbone encodes %d images and %d copies of each, once, into %s.", len(rows), copies, folder
    )
    images, rows = rows, encoded(rows, folder / TRAIN)
    for number in range(1, copies + 1):
        encoded(images, copy_folder(folder / TRAIN, number), change_of_copy(settings, seed, number))
    if copies:
        task.augment = FeatureCopies(folder / TRAIN, None, seed)
    if validation_rows is not None:
        validation_rows = encoded(validation_rows, folder / VALIDATION)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    logger.info("The features need %.0f MB; they can be deleted when the run is finished.", size / 1e6)
    return rows, validation_rows


def mirrored_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with image and boxes mirrored."""
    changed = {**row, "image": row["image"].transpose(Image.Transpose.FLIP_LEFT_RIGHT)}
    if row.get("visual_boxes") is not None:
        x1, y1, x2, y2 = np.asarray(row["visual_boxes"], dtype=np.float32).T
        changed["visual_boxes"] = np.stack([1 - x2, y1, 1 - x1, y2], axis=1)
    return changed


def crop_box(size: tuple[int, int], smallest: float, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Draws a "random resized crop" (Szegedy et al. 2015); if none of ten draws fits, the crop is the whole image."""
    width, height = size
    for _ in range(10):
        area = random.uniform(smallest, 1)
        stretch = math.exp(random.uniform(*np.log((3 / 4, 4 / 3))) / 2)
        crop_width = round(width * math.sqrt(area) * stretch)
        crop_height = round(height * math.sqrt(area) / stretch)
        left, upper = random.random(2)
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, upper = round(left * (width - crop_width)), round(upper * (height - crop_height))
            return left, upper, left + crop_width, upper + crop_height
    return 0, 0, width, height


def cropped(row: Mapping[str, Any], box: tuple[int, int, int, int]) -> dict[str, Any]:
    """Returns a row with a crop of its image; boxes are clipped to the crop."""
    image = row["image"]
    changed = {**row, "image": image.crop(box)}
    if row.get("visual_boxes") is not None:
        scale = np.array([image.width, image.height] * 2, dtype=np.float32)
        corner = np.array(box[:2] * 2, dtype=np.float32)
        size = np.array([box[2] - box[0], box[3] - box[1]] * 2, dtype=np.float32)
        boxes = np.asarray(row["visual_boxes"], dtype=np.float32)
        changed["visual_boxes"] = ((boxes * scale - corner) / size).clip(0, 1)
    return changed
