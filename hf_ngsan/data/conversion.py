"""Converts third-party files: features into a folder for `load_data("features:FOLDER", split)`, annotations without
features into a table.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value

from ..io.files import temporary_path, write_text_atomically
from ..io.folders import FolderLock, check_new_folder, put_in_place, write_folder_atomically
from ..io.messages import ProgressDisplay
from ..io.shards import SKIPPED, ShardFolder, ShardWriter, without_progress_bars
from .annotations import Annotations, listing
from .coco_files import read_json
from .errors import DataError, note_of_left_out
from .formats import open_sources
from .formats.layouts import Entry, FeatureSource
from .formats.rows import FORMAT, ConversionPlan, LeftOutError, RowMaker
from .question_answering import COLUMNS, is_answers, is_questions, read_questions, used_columns

METADATA = "conversion.json"


class ConversionFolder(ShardFolder):
    """The output folder of a conversion: shards and, in conversion.json, a [`ConversionPlan`]."""

    metadata_name = METADATA
    error = DataError

    def column(self, name: str) -> Iterator:
        for record in self.records():
            if record.num_rows:
                yield from Dataset.from_file(str(self.path / record.file)).data.column(name).chunks


class ConversionResult(NamedTuple):
    """Result of a conversion: number of rows in the folder, number of new rows (others come from an interrupted run),
    feature dimension D, minimum and maximum number of regions per image, `{"image_id", "file_name", "reason"}` of
    skipped records, and sentences about assumptions."""

    num_rows: int
    num_new: int
    feature_size: int
    num_regions: tuple[int, int]
    skipped: list[dict]
    notes: list[str]


def convert_features(
    inputs: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    source_format: str | None = None,
    dtype: str = "float16",
    boxes: str = "xyxy",
    grid_size: tuple[int, int] | None = None,
    split: str | None = None,
    images_per_shard: int = 256,
    skip_errors: bool = False,
) -> ConversionResult:
    """Writes the features of files in a known format into a folder of the feature contract.

    Annotation files among the inputs (`.json`) add captions, splits and sizes to their images. The rows are in the
    order of the inputs. A killed run leaves its rows next to the output, and the same call resumes it.

    `boxes` is the order of the four numbers of a box in the inputs: corners (`xyxy`), upper left corner with width and
    height (`xywh`), or centre with width and height (`cxcywh`). Grids are mean-pooled to `grid_size`. Records that
    cannot be used are a DataError, or are skipped and listed with `skip_errors`. The options are those of
    `hf-ngsan convert`.
    """
    output = Path(output)
    check_new_folder(output)
    skipped: list[dict] = []
    tolerated = skipped if skip_errors else None
    paths = [Path(path) for path in inputs]
    annotations = Annotations([path for path in paths if is_annotation(path)], tolerated)
    sources = [source for path in paths if not is_annotation(path) for source in open_sources(path, source_format)]
    if not sources:
        raise DataError(f"There are no features in {', '.join(map(str, paths))}; give a file or folder of features.")
    plan = ConversionPlan(
        key_of_inputs(sources, annotations, dtype, boxes, grid_size, split),
        [str(source.path) for source in sources],
        dtype,
        has_captions=annotations.has_captions,
        has_split=bool(split) or annotations.has_split,
    )
    folder = ConversionFolder(temporary_path(output))
    lock = FolderLock(folder.path, DataError(f"Another conversion is writing {output}; wait for its end."))
    lock.acquire(seconds=0)
    try:
        maker = RowMaker(sources, plan, annotations, boxes, grid_size, split)
        num_new = write_shards(folder, maker, images_per_shard, skip_errors)
        skipped += [entry for record in folder.records() for entry in record.skipped]
        skipped += without_features(annotations, maker, skip_errors)
        num_rows = folder.make_dataset(f"converted from {', '.join(plan.inputs)}", skipped)
        lengths = np.concatenate([pc.list_value_length(part) for part in folder.column("visual_features")])
        lock.release()
        put_in_place(folder.path, output)
    finally:
        for source in sources:
            source.close()
        lock.release()
        if folder.path.exists() and not folder.records():
            shutil.rmtree(folder.path)
    note = "The sizes of images are unknown; boxes were divided by the size of the smallest image that includes them."
    notes = [note] if plan.guesses_sizes else []
    regions = int(lengths.min()), int(lengths.max())
    return ConversionResult(num_rows, num_new, plan.feature_size, regions, skipped, notes)


def is_annotation(path: Path) -> bool:
    return path.suffix.lower() == ".json" and path.is_file()


def key_of_inputs(sources: Sequence[FeatureSource], annotations: Annotations, *options: object) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, *options]).encode())
    for path in [*(source.path for source in sources), *annotations.paths]:
        status = path.stat()
        digest.update(json.dumps([str(path.resolve()), status.st_size, status.st_mtime_ns]).encode())
    for source in sources:
        if source.path.is_dir():
            digest.update(json.dumps([name for name, _ in source.names]).encode())
    return digest.hexdigest()


def without_features(annotations: Annotations, maker: RowMaker, skip_errors: bool) -> list[dict]:
    """Returns an entry for each annotated image without features; raises a DataError unless `skip_errors`."""
    missing: list = [image_id for image_id in annotations.by_id if image_id not in maker.seen]
    if maker.names:
        missing = [name for name in annotations.by_name if name not in maker.names]
    place = ", ".join(map(str, annotations.paths))
    if missing:
        note_of_left_out(f"{len(missing)} images of {place} have no features: {listing(missing)}", skip_errors)
    return [skipped_entry(image, place, DataError(f"{place}: {image} has no features.")) for image in missing]


def skipped_entry(image_id: int | str | None, place: object, error: DataError) -> dict:
    return {"image_id": image_id, "file_name": str(place), "reason": str(error)}


def write_shards(folder: ConversionFolder, maker: RowMaker, images_per_shard: int, skip_errors: bool) -> int:
    """Writes the records of all sources shard by shard, after the existing ones; returns the number of new rows."""
    chunk, first, place = resume(folder, maker)
    num_new = 0
    for number, source in list(enumerate(maker.sources))[first:]:
        entries = source.entries(place)
        with ProgressDisplay(f"converting {source.path.name}", source.total, place, source.unit) as display:
            while True:
                num_rows = write_shard(folder, maker, chunk, number, entries, images_per_shard, skip_errors, display)
                if num_rows is None:
                    break
                chunk, num_new = chunk + 1, num_new + num_rows
        place = 0
    return num_new


def resume(folder: ConversionFolder, maker: RowMaker) -> tuple[int, int, int]:
    """Returns the first chunk after the complete shards, the number of its source, and its position there."""
    records = folder.records()
    try:
        recorded = json.loads((folder.path / METADATA).read_text(encoding="utf-8"))
        is_own = recorded["key"] == maker.plan.key
    except (OSError, ValueError, LookupError, TypeError):
        is_own = False
    if not (is_own and records and [record.chunk for record in records] == list(range(len(records)))):
        folder.remove_metadata()
        folder.remove_leftovers()
        return 0, 0, 0
    folder.remove_leftovers()
    folder.refuse_changed_shards(record for record in records if record.num_rows)
    vars(maker.plan).update(recorded)
    maker.seen = {image_id for part in folder.column("image_id") for image_id in part.to_pylist()}
    if maker.plan.has_names:
        maker.names = {name for part in folder.column("file_name") for name in part.to_pylist()}
    source, place = records[-1].end
    return len(records), source, place


def write_shard(
    folder: ConversionFolder,
    maker: RowMaker,
    chunk: int,
    number: int,
    entries: Iterator[Entry],
    images_per_shard: int,
    skip_errors: bool,
    display: ProgressDisplay,
) -> int | None:
    """Writes one shard with the next entries of a source; returns its number of rows, or None if none are left."""
    skipped: list[dict] = []
    shard: ShardWriter | None = None
    count = end = 0
    try:
        for entry in entries:
            count, end, name, row = count + 1, entry.end, entry.name, None
            try:
                name, record = entry.read()
                row = maker.make_row(number, entry, name, record)
            except DataError as error:
                if not (skip_errors or isinstance(error, LeftOutError)):
                    kept = "; converted records are kept" if folder.records() else ""
                    raise DataError(f"{str(error).rstrip('.')} (--skip-errors skips it{kept}).") from error
                skipped.append(skipped_entry(name, entry.where, error))
            if row is not None:
                if not (folder.path / METADATA).exists():
                    write_text_atomically(folder.path / METADATA, json.dumps(asdict(maker.plan), indent=2))
                shard = shard or ShardWriter(folder, maker.plan.columns, 0, chunk, maker.plan.key)
                shard.write({name: row[name] for name in maker.plan.columns})
            display.update(end)
            if count == images_per_shard:
                break
        if not count:
            return None
        shard = shard or ShardWriter(folder, Features({"image_id": Value("int64")}), 0, chunk, maker.plan.key)
        shard.commit(skipped, end=(number, end))
        return shard.num_rows
    finally:
        if shard:
            shard.discard()


IMAGE_COLUMNS = {
    "image_id": Value("int64"),
    "file_name": Value("string"),
    "captions": List(Value("string")),
    "split": Value("string"),
    "width": Value("int32"),
    "height": Value("int32"),
}


class TableResult(NamedTuple):
    """Result of a conversion of annotations: number of rows, columns, and skipped records."""

    num_rows: int
    columns: list[str]
    skipped: list[dict]


def convert_annotations(
    inputs: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    split: str | None = None,
    skip_errors: bool = False,
) -> TableResult:
    """Writes annotation files into a table for `datasets.load_from_disk`: images, merged by id, or questions of VQA v2.
    The arguments are those of [`convert_features`]."""
    output = Path(output)
    check_new_folder(output)
    paths = [Path(path) for path in inputs]
    skipped: list[dict] = []
    tolerated = skipped if skip_errors else None
    first = read_json(paths[0])
    if is_questions(first) or is_answers(first):
        rows, columns = read_questions(paths, tolerated), COLUMNS
    else:
        columns = IMAGE_COLUMNS
        rows = [
            {
                "image_id": place if image.image_id is None else image.image_id,
                "file_name": image.name,
                "captions": image.captions or None,
                "split": image.split or split,
                **dict(zip(("width", "height"), image.size or (None, None), strict=True)),
            }
            for place, image in enumerate(Annotations(paths, tolerated).images)
        ]
    if not rows:
        reason = skipped[0]["reason"] if skipped else "it is empty."
        raise DataError(f"{paths[0]} has no usable record; {reason}")
    features = used_columns(rows, columns)
    table = Dataset.from_dict({name: [row.get(name) for row in rows] for name in features}, features=features)

    def write(folder: Path) -> None:
        with without_progress_bars():
            table.save_to_disk(str(folder))
        (folder / SKIPPED).write_text(json.dumps(skipped, indent=2, ensure_ascii=False), encoding="utf-8")

    write_folder_atomically(output, write, manifest=False)
    return TableResult(len(rows), list(features), skipped)
