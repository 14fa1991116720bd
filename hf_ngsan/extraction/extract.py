"""Extraction: a vision encoder turns images into a folder of features, on one process or many."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy
import torch
from accelerate import Accelerator
from datasets import Features, Value
from transformers import BaseImageProcessor, PreTrainedModel

from ..data.contract import DTYPES, caption_features, check_row
from ..io.files import FileStamp
from ..io.shards import ShardWriter, shard_name
from ..loading.provenance import installed_versions, vision_provenance
from .errors import ExtractionError
from .feature_folder import FORMAT, PACKAGES, FeatureFolder, check_output_folder
from .image_list import ImageList, check_split, list_images
from .loading import ImageChange, PreparedBatch, load_batches, next_batch
from .plan import Chunk, default_images_per_shard, plan_chunks, refuse_changed_images, stamps_of_images
from .together import (
    default_num_workers,
    extraction_accelerator,
    lock_of,
    on_main_process,
    progress_display,
    wait_for_everyone,
)


class ExtractionResult(NamedTuple):
    """Result of an extraction, equal in every process.

    Attributes:
        num_rows: rows of the folder.
        skipped: `{"image_id", "file_name", "reason"}` of images that could not be read.
        num_new: rows that this run added.
        seconds: duration of the run.
    """

    num_rows: int
    skipped: list[dict]
    num_new: int
    seconds: float


def extract_features(
    model: PreTrainedModel,
    image_processor: BaseImageProcessor,
    images: ImageList | str | os.PathLike,
    output: str | os.PathLike,
    *,
    name: str = "the backbone",
    split: str | None = None,
    batch_size: int = 16,
    num_workers: int | None = None,
    dtype: str = "float16",
    images_per_shard: int | None = None,
    strict: bool = False,
    change: ImageChange | None = None,
    accelerator: Accelerator | None = None,
) -> ExtractionResult:
    """Writes the visual features and boxes of images into a folder that `load_data("features:FOLDER", split)` reads.

    The finished shards of a killed run stay, and the same call resumes: the rows are those of a run without
    interruption. New images are added to those in the folder. Several processes each write their own shards, together
    the rows that one process would write.

    Args:
        model: a [`VisionModel`].
        image_processor: its image processor.
        images: from [`list_images`], or its source, a folder or COCO file.
        output: the folder; new, empty, or one of an earlier extraction with the same model and preprocessing.
        name: name of the model, for the metadata and messages.
        split: value of the column `split`; no such column with `None`.
        batch_size: images that go through the model together.
        num_workers: processes that read and preprocess images, for each process that has a model; `None` = the
            processors that each has, 4 at most.
        dtype: `"float16"` or `"float32"`, of the stored features.
        images_per_shard: images per shard of a new folder; depends on the number of images if `None`.
        strict: an image that cannot be read is an error; otherwise it is skipped and listed.
        change: change of each image before preprocessing; `width` and `height` are those of the changed image.
        accelerator: accelerator of the processes that share the work; made if `None`.

    Raises:
        ExtractionError: the folder holds something else, its features or their images have changed, no image can be
            read, or features are not finite.

    Example:

    ```python
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from hf_ngsan import CaptioningImageProcessor, VisionConfig, VisionModel
    >>> from hf_ngsan.data import load_data
    >>> from hf_ngsan.extraction import extract_features

    >>> Path("photos").mkdir()
    >>> for number in range(3):
    ...     Image.new("RGB", (80, 60), (number, 0, 0)).save(f"photos/{number}.png")
    >>> backbone = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}
    >>> model = VisionModel(VisionConfig(backbone_config=backbone, grid_size=[7, 7]))  # or a trained one, `load_vision`
    >>> image_processor = CaptioningImageProcessor(size={"height": 32, "width": 32})
    >>> extract_features(model, image_processor, "photos", "features", split="train", num_workers=0).num_rows
    3
    >>> load_data("features:features", "train")[0]["visual_features"].shape
    (49, 8)

    ```
    """
    if dtype not in DTYPES:
        raise ExtractionError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}.")
    if min(batch_size, images_per_shard or 1) < 1:
        raise ExtractionError(f"batch_size is {batch_size}, images_per_shard {images_per_shard}; both must be above 0.")
    check_split(split)
    images = images if isinstance(images, ImageList) else list_images(images)
    accelerator = accelerator or extraction_accelerator()
    folder = FeatureFolder(output)
    lock = lock_of(folder.path, "extraction")
    begin = time.perf_counter()

    def plan() -> tuple[list[Chunk], dict, int]:
        shard_size = images_per_shard or default_images_per_shard(len(images), batch_size)
        columns = ["image_id", "visual_features", "visual_boxes", "width", "height", "file_name"]
        if images.has_captions:
            columns.append("captions")
        if split is not None:
            columns.append("split")
        described = {
            "format": FORMAT,
            "backbone": str(name),
            **vision_provenance(model, image_processor),
            "dtype": dtype,
            "columns": columns,
            "images_per_shard": shard_size,
            **({} if change is None else {"change": dict(change.description)}),
            "versions": installed_versions(PACKAGES),
        }
        check_output_folder(folder.path)
        lock.acquire()
        metadata = folder.begin(described)
        records = folder.records(with_images=True)
        rows = folder.rows_by_image_id(records)
        chunks = plan_chunks(images, split, records, rows, metadata["images_per_shard"], batch_size)
        refuse_changed_images(images, stamps_of_images(images, records, rows))
        return chunks, metadata, len(rows)

    def publish() -> tuple[int, list[dict]]:
        return folder.publish(metadata, [shard_name(one.generation, one.number) for one in chunks if not one.is_retry])

    try:
        chunks, metadata, num_before = on_main_process(accelerator, plan)
        model = model.eval().to(accelerator.device)
        writer = ChunkWriter(model, image_processor, images, folder, metadata, split, strict, change)
        own = chunks[accelerator.process_index :: accelerator.num_processes]
        writer.write(own, default_num_workers(accelerator) if num_workers is None else num_workers, accelerator)
        wait_for_everyone(accelerator)
        num_rows, skipped = on_main_process(accelerator, publish)
    finally:
        lock.release()
    return ExtractionResult(num_rows, skipped, num_rows - num_before, time.perf_counter() - begin)


def columns_of(metadata: Mapping) -> Features:
    """Returns the `datasets.Features` of an extraction's rows."""
    columns = caption_features(
        metadata["feature_size"], dtype=metadata["dtype"], size=True, split="split" in metadata["columns"]
    )
    columns["file_name"] = Value("string")
    return Features({name: feature for name, feature in columns.items() if name in metadata["columns"]})


def encoded(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], dtype: str, names: Sequence[str]
) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Returns features `(N, D)` and float32 boxes `(N, 4)` of each image.

    Args:
        model: a [`VisionModel`].
        inputs: of its image processor.
        dtype: of the features.
        names: of the images, for errors.

    Raises:
        ExtractionError: features that are not finite, or too large for the type they are stored as.
    """
    with torch.inference_mode():
        output = model(**{name: tensor.to(model.device) for name, tensor in inputs.items()})
    features, boxes = output.visual_features.float().cpu().numpy(), output.visual_boxes.float().cpu().numpy()
    masks = output.attention_mask.bool().cpu().numpy()
    return [
        (stored(of_image[mask], dtype, name), of_boxes[mask])
        for of_image, of_boxes, mask, name in zip(features, boxes, masks, names, strict=True)
    ]


def stored(features: numpy.ndarray, dtype: str, name: str) -> numpy.ndarray:
    if not numpy.isfinite(features).all():
        raise ExtractionError(f"{name}: the backbone's features are not finite; check its weights.")
    largest = numpy.finfo(dtype).max
    if numpy.abs(features).max(initial=0) > largest:
        raise ExtractionError(f"{name}: features beyond {largest:g} do not fit float16; use --dtype float32.")
    return features.astype(dtype)


class ChunkWriter:
    """Sends chunks of images through the model and writes a shard for each."""

    def __init__(
        self,
        model: PreTrainedModel,
        image_processor: BaseImageProcessor,
        images: ImageList,
        folder: FeatureFolder,
        metadata: Mapping,
        split: str | None,
        strict: bool,
        change: ImageChange | None,
    ) -> None:
        self.model, self.image_processor, self.images, self.folder = model, image_processor, images, folder
        self.split, self.strict, self.change = split, strict, change
        self.metadata, self.columns = metadata, columns_of(metadata)
        self.image_list = images.checksum(split)

    def write(self, chunks: list[Chunk], num_workers: int, accelerator: Accelerator) -> None:
        """Writes chunks; `num_workers` processes read and preprocess images."""
        batches = [batch for chunk in chunks for batch in chunk.batches]
        workers = num_workers if batches else 0
        prepared = iter(load_batches(self.images, batches, self.image_processor, workers, self.change))
        with progress_display("extracting", sum(chunk.num_images for chunk in chunks), accelerator) as display:
            done = 0
            for chunk in chunks:
                for number in self.write_chunk(chunk, prepared):
                    done += number
                    display.update(done)

    def write_chunk(self, chunk: Chunk, prepared: Iterator[PreparedBatch]) -> Iterator[int]:
        """Writes a shard, and yields the number of images of each batch."""
        shard = ShardWriter(self.folder, self.columns, chunk.generation, chunk.number, self.image_list)
        skipped: list[dict] = []
        stamps: dict[str, FileStamp] = {}
        try:
            for positions in chunk.batches:
                batch = next_batch(prepared)
                stamps |= {str(self.images.images[at].image_id): stamp for at, stamp in batch.stamps.items()}
                if batch.unreadable and self.strict:
                    raise ExtractionError(batch.unreadable[0][1])
                for position, reason in batch.unreadable:
                    image = self.images.images[position]
                    skipped.append({"image_id": image.image_id, "file_name": image.file_name, "reason": reason})
                for row in self.rows_of(batch):
                    shard.write(row)
                yield len(positions)
            if shard.num_rows or not chunk.is_retry:
                shard.commit(skipped, stamps)
        finally:
            shard.discard()

    def rows_of(self, batch: PreparedBatch) -> list[dict]:
        """Returns rows of the feature contract.

        Raises:
            ExtractionError: features that are not finite, or too large for the type they are stored as.
        """
        if not batch.positions:
            return []
        names = [self.images.images[position].file_name for position in batch.positions]
        try:
            found = encoded(self.model, batch.inputs, self.metadata["dtype"], names)
        except torch.OutOfMemoryError as error:
            raise ExtractionError(
                "The device has too little memory for a batch; use a smaller --batch-size."
            ) from error
        rows = []
        for position, (width, height), (features, boxes) in zip(batch.positions, batch.sizes, found, strict=True):
            image = self.images.images[position]
            row = {
                "image_id": image.image_id,
                "visual_features": features,
                "visual_boxes": boxes,
                "captions": list(image.captions or ()),
                "width": width,
                "height": height,
                "split": self.split,
                "file_name": image.file_name,
            }
            row = {name: row[name] for name in self.columns}
            rows.append(check_row(row, where=image.file_name, feature_size=self.metadata["feature_size"]))
        return rows
