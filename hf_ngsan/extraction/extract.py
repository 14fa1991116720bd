"""Extraction: a vision encoder turns images into a folder of features (`io.shards`), in one process or many."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from datasets import Dataset, Features, List, Value

from ..data.boxes import ImageBoxes
from ..data.contract import caption_features, check_row
from ..exporting.onnx_folder import VisionGraph
from ..io.files import FileStamp, check_place, write_text_atomically
from ..io.folders import FolderLock, is_empty
from ..io.processes import default_images_per_shard, extraction_accelerator, on_main_process
from ..io.shards import ShardFolder, ShardRecord, ShardWriter, shard_name
from ..loading.provenance import installed_versions, provenance_difference, stored_provenance, vision_provenance
from .image_list import SKIP_ERRORS, ExtractionError, ImageChange, ImageList, PreparedBatch, list_images, load_batches

METADATA = "extraction.json"  # the provenance of the features
PACKAGES = ("hf-ngsan", "torch", "transformers", "pillow", "numpy", "datasets")


class ExtractionResult(NamedTuple):
    """The result of an extraction, the same in every process."""

    num_rows: int  # rows in the folder
    skipped: list[dict]  # `{"image_id", "file_name", "reason"}` of unreadable images
    num_new: int  # rows that this run added
    seconds: float  # duration of the run


class Chunk(NamedTuple):
    """Images of one shard."""

    generation: int
    number: int
    batches: tuple[tuple[int, ...], ...]  # positions in the list; every run makes the same batches
    is_retry: bool  # whether the images could not be read before


class FeatureFolder(ShardFolder):
    metadata_name = METADATA
    error = ExtractionError


def extract_features(
    model: Any,
    image_processor: Any,
    images: ImageList | str | os.PathLike,
    output: str | os.PathLike,
    *,
    name: str = "the backbone",
    split: str | None = None,
    batch_size: int = 16,
    num_workers: int | None = None,
    dtype: str = "float16",
    images_per_shard: int | None = None,
    skip_errors: bool = False,
    change: ImageChange | None = None,
    detector: Callable[[list], Any] | None = None,
    accelerator: Any = None,
) -> ExtractionResult:
    """Writes the visual features and boxes of images into a folder for `load_data("features:FOLDER", split)`.

    The same call resumes a killed run from its finished shards, with the same rows as an uninterrupted run. New images
    are added to the folder. Several processes write different shards, with the same rows as one process.

    Args:
        model: a [`VisionModel`], or the graph of one, which works in one process without torch.
        image_processor: its image processor, or that of the graph.
        images: result of [`list_images`], or its source: a folder or COCO file.
        output: a new or empty folder, or one of an earlier extraction with the same model and preprocessing.
        name: name of the model, for the metadata and messages.
        split: value of the column `split`; no such column if `None`.
        batch_size: number of images per batch of the model.
        num_workers: number of processes that read and preprocess images, per process with a model; `None` = the number
            of available CPUs, at most 4.
        dtype: data type of the stored features, `"float16"` or `"float32"`.
        images_per_shard: images per shard of a new folder; depends on the number of images if `None`.
        skip_errors: whether an image that cannot be read is left out and listed; otherwise it is an error.
        change: change of each image before preprocessing; `width` and `height` are those of the changed image.
        detector: finds the boxes for a model of kind `"boxes"` if the images have none ([`ImageList.with_boxes`]). It
            is called with a list of PIL images, and returns three lists, or a list with a triple for each image: boxes
            `(N, 4)` as `x1, y1, x2, y2` in pixels, their scores and their labels.
        accelerator: Accelerator of the processes that share the work, created if `None`, or
            [`~hf_ngsan.io.processes.OneProcess`].

    Raises:
        ExtractionError: the folder has other contents, its features or their images have changed, an image cannot be
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
    >>> model = VisionModel(VisionConfig(backbone_config=backbone, grid_size=[7, 7]))  # trained ones: `load_vision`
    >>> image_processor = CaptioningImageProcessor(size={"height": 32, "width": 32})
    >>> extract_features(model, image_processor, "photos", "features", split="train", num_workers=0).num_rows
    3
    >>> load_data("features:features", "train")[0]["visual_features"].shape
    (49, 8)

    ```
    """
    images = images if isinstance(images, ImageList) else list_images(images)
    accelerator = accelerator or extraction_accelerator()
    folder, begin = FeatureFolder(output), time.perf_counter()
    lock = FolderLock(folder.path, ExtractionError(f"Another extraction is writing {folder.path}; wait for its end."))
    if (model.config.kind == "boxes") != bool(images.boxes) + (detector is not None):
        raise ExtractionError(f"{name}: boxes of a file or a detector need a vision encoder of kind boxes.")
    if dtype not in ("float16", "float32"):
        raise ExtractionError(f"Features cannot be stored as {dtype}; choose float16 or float32.")
    if change is not None and model.config.kind == "boxes":
        raise ExtractionError("Images with boxes cannot be changed: their boxes would not be changed.")

    def plan() -> tuple[dict, list[Chunk], int]:
        check_extraction_folder(folder.path)
        lock.acquire()
        description = {
            "format": 1,
            "backbone": str(name),
            **(model.provenance if isinstance(model, VisionGraph) else vision_provenance(model, image_processor)),
            "dtype": dtype,
            "columns": column_names(model.config.kind, images, split),
            "images_per_shard": images_per_shard or default_images_per_shard(len(images), batch_size),
            **({} if change is None else {"change": dict(change.description)}),
            "versions": installed_versions(PACKAGES),
        }
        return plan_in_folder(folder, description, images, split, batch_size)

    try:
        description, chunks, num_before = on_main_process(accelerator, plan)
        extraction = Extraction(model, images, folder, description, split, detector, skip_errors)
        share = chunks[accelerator.process_index :: accelerator.num_processes]
        batches = [batch for chunk in share for batch in chunk.batches]
        prepared = load_batches(images, batches, image_processor, num_workers, accelerator, "extracting", change)
        if not isinstance(model, VisionGraph):
            model.eval().to(accelerator.device)
        for chunk in share:
            extraction.write_shard(chunk, prepared)
        accelerator.wait_for_everyone()
        num_rows, skipped = on_main_process(accelerator, lambda: extraction.publish(chunks))
    finally:
        lock.release()
    return ExtractionResult(num_rows, skipped, num_rows - num_before, time.perf_counter() - begin)


@dataclass(frozen=True)
class Extraction:
    """An extraction into a folder with a description (see `extraction.json`)."""

    model: Any
    images: ImageList
    folder: FeatureFolder
    description: Mapping
    split: str | None
    detector: Callable[[list], Any] | None
    skip_errors: bool

    @cached_property
    def image_list(self) -> str:
        return self.images.checksum(self.split)

    def write_shard(self, chunk: Chunk, prepared: Iterator[PreparedBatch]) -> None:
        """Encodes the batches of a chunk, which are the next prepared ones, and writes its shard."""
        images, columns = self.images, columns_of(self.description)
        shard = ShardWriter(self.folder, columns, chunk.generation, chunk.number, self.image_list)
        unread: list[dict] = []
        stamps: dict[str, FileStamp] = {}
        try:
            for batch in islice(prepared, len(chunk.batches)):
                keys = {place: stamp_key(self.split, images.images[place].image_id) for place in batch.positions}
                stamps |= {keys[place]: stamp for place, stamp in batch.stamps.items()}
                if images.boxes:
                    stamps |= {f"boxes {key}": images.boxes[place].stamp for place, key in keys.items()}
                for place, reason in batch.unreadable:
                    if not self.skip_errors:
                        raise ExtractionError(f"{reason} {SKIP_ERRORS}")
                    image = images.images[place]
                    unread.append({"image_id": image.image_id, "file_name": image.file_name, "reason": reason})
                for row in self.rows_of_batch(batch):
                    shard.write(row)
            if shard.num_rows or not chunk.is_retry:
                shard.commit(unread, stamps)
        finally:
            shard.discard()

    def rows_of_batch(self, batch: PreparedBatch) -> Iterator[dict]:
        if not batch.positions:
            return
        listed, boxes = [self.images.images[position] for position in batch.positions], self.boxes_of_batch(batch)
        inputs = batch.inputs
        if boxes:
            from ..models.processing_captioning import pad_visual_inputs

            inputs = inputs | pad_visual_inputs(visual_boxes=[image_boxes.corners for image_boxes in boxes])
        names = [image.file_name for image in listed]
        encoded_images = encoded(self.model, inputs, self.description["dtype"], names)
        for place, (image, (width, height), fields) in enumerate(zip(listed, batch.sizes, encoded_images, strict=True)):
            if boxes:  # followed by the whole image and grid cells
                labels, scores = boxes[place].labels, boxes[place].scores
                rest = len(fields["visual_boxes"]) - len(labels)
                fields |= {"objects": [*labels, *[""] * rest], "object_scores": [*scores, *[1.0] * rest]}
            row = {
                "image_id": image.image_id,
                **fields,
                "captions": list(image.captions or ()),
                "width": width,
                "height": height,
                "split": self.split,
                "file_name": image.file_name,
            }
            row = {name: row[name] for name in self.description["columns"]}
            yield check_row(row, where=image.file_name, feature_size=self.description["feature_size"])

    def boxes_of_batch(self, batch: PreparedBatch) -> list[ImageBoxes]:
        """Returns the boxes of the images of a batch, from their file or a detector; none without either."""
        images, positions = self.images, batch.positions
        boxes = [images.boxes[place] for place in positions if images.boxes]
        if self.detector is not None:
            detections = self.detector([images.read(place)[0] for place in positions])
            triples = [*zip(*detections, strict=True)] if isinstance(detections, tuple) else detections
            boxes = [ImageBoxes.of(*triple).surest(self.model.config) for triple in triples]
            if len(boxes) != len(positions):
                raise ExtractionError(f"The detector returned boxes of {len(boxes)} images, not {len(positions)}.")
        sized = zip(boxes, batch.sizes, positions, strict=False)
        return [part.fitted(*size, images.images[place].file_name, self.skip_errors) for part, size, place in sized]

    def publish(self, chunks: Sequence[Chunk]) -> tuple[int, list[dict]]:
        """Makes all shards one dataset; returns its number of rows, and the images that could not be read."""
        records = self.folder.records()
        unread = {(entry["image_id"], entry["file_name"]): entry for record in records for entry in record.skipped}
        rows = rows_by_image_id(self.folder, records) if unread else {}
        present = {(image_id, row["file_name"]) for (_, image_id), row in rows.items()}
        skipped = [entry for key, entry in unread.items() if key not in present]
        written = [shard_name(chunk.generation, chunk.number) for chunk in chunks if not chunk.is_retry]
        return self.folder.make_dataset(json.dumps(stored_provenance(self.description)), skipped, written), skipped


def column_names(kind: str, images: ImageList, split: str | None) -> list[str]:
    """Returns the columns of the features of a vision encoder of some kind."""
    names = ["image_id", "visual_features", *["visual_boxes"] * (kind != "frames"), "width", "height", "file_name"]
    names += ["objects", "object_scores"] * (kind in ("regions", "boxes"))
    return names + ["captions"] * images.has_captions + ["split"] * (split is not None)


def columns_of(description: Mapping) -> Features:
    columns = caption_features(description["feature_size"], dtype=description["dtype"], size=True, split=True)
    columns |= {"file_name": Value("string"), "objects": List(Value("string")), "object_scores": List(Value("float32"))}
    return Features({name: feature for name, feature in columns.items() if name in description["columns"]})


def encoded(model: Any, inputs: Mapping[str, Any], dtype: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Encodes images; returns for each of them `visual_features` `(N, D)` in a dtype, float32 `visual_boxes` `(N, 4)`
    (except for frames) and, for detected regions, their class names `objects` and their `object_scores`.
    """
    outputs = model(**inputs) if isinstance(model, VisionGraph) else vision_outputs(model, inputs)
    mask = outputs.pop("attention_mask").astype(bool)
    rows = []
    for place, name in enumerate(names):
        fields = {key: values[place][mask[place]] for key, values in outputs.items()}
        with numpy.errstate(over="ignore"):
            row: dict[str, Any] = {"visual_features": fields.pop("visual_features").astype(dtype)}
        if not numpy.isfinite(row["visual_features"]).all():
            raise ExtractionError(f"{name}: features are not finite {dtype}; use --dtype float32 or check the weights.")
        if "classes" in fields:
            labels = model.config.backbone_config.id2label
            row["objects"] = [labels.get(number, "") for number in fields.pop("classes").tolist()]
            row["object_scores"] = fields.pop("scores").tolist()
        rows.append(row | fields)
    return rows


def vision_outputs(model: Any, inputs: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
    """Returns the outputs of a vision encoder as arrays, floats in single precision."""
    import torch

    options = {"output_detections": True} if model.config.kind == "regions" else {}
    with torch.inference_mode():
        output = model(**{name: tensor.to(model.device) for name, tensor in inputs.items()}, **options)
    arrays = {name: values.cpu() for name, values in output.items()}
    return {name: (array.float() if array.is_floating_point() else array).numpy() for name, array in arrays.items()}


def check_extraction_folder(folder: Path) -> None:
    """Raises an ExtractionError or OSError unless a folder is new or an extraction, and can be written."""
    if not is_empty(folder) and not (folder / METADATA).is_file():
        raise ExtractionError(f"The output {folder} is a file, or has files of another kind; choose another.")
    check_place(folder / METADATA)


def plan_in_folder(
    folder: FeatureFolder, description: dict, images: ImageList, split: str | None, batch_size: int
) -> tuple[dict, list[Chunk], int]:
    """Returns the description of a new folder, or of the features in it, the chunks to add, and its number of rows."""
    description = begin_folder(folder, description)
    records = folder.records(with_images=True)
    rows = rows_by_image_id(folder, records)
    refuse_changed_images(images, split, records, rows)
    chunks = plan_chunks(images, split, records, rows, description["images_per_shard"], batch_size)
    return description, chunks, len(rows)


def begin_folder(folder: FeatureFolder, description: dict) -> dict:
    """Writes the description of a new folder, or checks that features may be added; returns the description."""
    if any(record.num_rows for record in folder.records()):
        recorded = json.loads((folder.path / METADATA).read_bytes())
        difference = provenance_difference(recorded, description)
        for key in ("dtype", "change", "columns"):
            if difference is None and recorded.get(key) != description.get(key):
                difference = f"another {key} ({description.get(key)}, not {recorded.get(key)})"
        if difference is not None:
            new = f"new ones of {description['backbone']} would have {difference}"
            raise ExtractionError(f"{folder.path} has features of {recorded['backbone']}; {new}; choose another one.")
        description = recorded
    else:
        folder.remove_metadata()
        write_text_atomically(folder.path / METADATA, json.dumps(description, indent=2))
    folder.remove_leftovers()
    return description


def stamp_key(split: str | None, image_id: int) -> str:
    """Returns the name of an image in the records of shards; images of several splits may have equal ids."""
    return str(image_id) if split is None else f"{split}/{image_id}"


def rows_by_image_id(folder: FeatureFolder, records: Iterable[ShardRecord]) -> dict[tuple[str | None, int], dict]:
    """Returns file name, split and captions (if present) of every image with features, by its split and id."""
    rows: dict[tuple[str | None, int], dict] = {}
    for record in records:
        if record.num_rows:
            shard = Dataset.from_file(str(folder.path / record.file))
            columns = [name for name in ("image_id", "file_name", "split", "captions") if name in shard.column_names]
            rows |= {(row.get("split"), row.pop("image_id")): row for row in shard.select_columns(columns).to_list()}
    return rows


def refuse_changed_images(
    images: ImageList,
    split: str | None,
    records: Iterable[ShardRecord],
    rows: Mapping[tuple[str | None, int], Mapping],
) -> None:
    """Raises an ExtractionError if rows of a folder have the same ids but other images, or changed ones."""
    stamps = {key: stamp for record in records for key, stamp in record.images.items()}
    files = {(image_id, row["file_name"]): row for (_, image_id), row in rows.items()}
    for place, image in enumerate(images.images):
        row = rows.get((split, image.image_id)) or files.get((image.image_id, image.file_name))
        if row is None:
            continue
        key = stamp_key(split, image.image_id)
        where = f"{images.source}: {image.file_name} (image {image.image_id})"
        expected = {"file_name": image.file_name, "split": split, "captions": image.captions and list(image.captions)}
        for field, value in expected.items():
            if row.get(field) != value:
                raise ExtractionError(f"{where} has {field} {value!r}, but {row.get(field)!r} in the output folder.")
        if images.boxes and stamps.get(f"boxes {key}") != images.boxes[place].stamp:
            raise ExtractionError(f"{where} had other boxes when its features were extracted; choose another output.")
        if key in stamps and not images.is_unchanged(place, stamps[key]):
            raise ExtractionError(f"{where} changed since its features were extracted; choose another output folder.")


def plan_chunks(
    images: ImageList,
    split: str | None,
    records: Sequence[ShardRecord],
    rows: Mapping[tuple[str | None, int], Mapping],
    images_per_shard: int,
    batch_size: int,
) -> list[Chunk]:
    """Returns the chunks of images that have no features in a folder with these records and rows."""
    image_list = images.checksum(split)
    next_generation = max((record.generation for record in records), default=-1) + 1
    current = [record for record in records if record.image_list == image_list]
    generation = min((record.generation for record in current), default=next_generation)
    done = {record.chunk for record in current if record.generation == generation}
    chunks = []
    for number, start in enumerate(range(0, len(images), images_per_shard)):
        end = min(start + images_per_shard, len(images))
        batches = (range(first, min(first + batch_size, end)) for first in range(start, end, batch_size))
        without_rows = (tuple(i for i in batch if (split, images.images[i].image_id) not in rows) for batch in batches)
        missing = tuple(batch for batch in without_rows if batch)
        if missing:
            is_retry = number in done
            chunks.append(Chunk(next_generation if is_retry else generation, number, missing, is_retry))
    return chunks
