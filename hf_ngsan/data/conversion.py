"""Conversion of third-party feature files into a folder that `load_data("features:FOLDER", split)` reads.

```python
convert_features(["trainval_36.tsv", "dataset_coco.json"], "features").num_rows
```
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from datasets import Dataset, Features, Value

from ..io.files import check_place, rename_durably, temporary_path, write_text_atomically
from ..io.folders import FolderLock, is_empty
from ..io.progress_display import ProgressDisplay
from ..io.shards import ROWS_PER_RECORD_BATCH, ShardFolder, ShardWriter
from .coco_files import number_of
from .contract import DTYPES
from .errors import DataError
from .formats.annotations import Annotations, listing
from .formats.record import Entry, ListedSource, Source
from .formats.registry import CONVENTIONS, open_sources
from .formats.rows import FORMAT, ConversionPlan, ImageIds, LeftOutError, RowMaker, bytes_of, table_of

METADATA = "conversion.json"
IMAGES_PER_SHARD = 256
BYTES_PER_RECORD_BATCH = 2**26


class ConversionFolder(ShardFolder):
    """The folder that a conversion fills: shards and, in conversion.json, a [`ConversionPlan`]."""

    metadata_name = METADATA
    error = DataError

    def values(self, column: str) -> Iterator:
        """Yields the values of a column."""
        return (value for shard in self.shards(column) for value in shard[column])

    def num_regions(self) -> tuple[int, int]:
        """Returns the fewest and the most regions of an image; 0 for images without features."""
        parts = (part for shard in self.shards("visual_features") for part in shard.data.column(0).chunks)
        lengths = [pc.list_value_length(part) for part in parts if len(part)]
        return min(pc.min(one).as_py() for one in lengths), max(pc.max(one).as_py() for one in lengths)

    def shards(self, column: str) -> Iterator[Dataset]:
        for record in self.records():
            if record.num_rows:
                yield Dataset.from_file(str(self.path / record.file)).select_columns([column])


class ConversionResult(NamedTuple):
    """Result of a conversion.

    Attributes:
        num_rows: rows of the folder.
        num_new: rows of this run; the others are of an earlier run that was interrupted.
        feature_size: D; 0 for images without features.
        num_regions: the fewest and the most regions of an image.
        skipped: `{"image_id", "file_name", "reason"}` of records that could not be read.
        notes: sentences about assumptions.
    """

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
    boxes: str | None = None,
    grid_size: tuple[int, int] | None = None,
    split: str | None = None,
    images_per_shard: int = IMAGES_PER_SHARD,
    skip_broken: bool = False,
) -> ConversionResult:
    """Writes the features of files in a known format into a folder of the feature contract.

    Annotation files among the inputs (`.json`, [`formats.annotations`]) add captions, splits and sizes to their images,
    each of which must have features; images without annotations are then left out and listed.

    The rows are in the order of the inputs. The id of an image is the number in its name; if names are no numbers, it
    is the place among them, and the column `file_name` has the name. A killed run leaves its rows beside the output,
    and the same call resumes there; the output appears when it is complete. Memory is needed for the ids of all images
    and for one batch of rows.

    Args:
        inputs: files or folders of features ([`formats.registry`]), and annotation files.
        output: the folder; new or empty.
        source_format: name of the format of the features; recognised if None.
        dtype: `"float16"` or `"float32"`, of the stored features.
        boxes: the convention of the boxes in the files, one of `CONVENTIONS`; corners, in pixels or not, if None.
        grid_size: rows and columns that grids are pooled to by their means (adaptive average pooling); left as they are
            if None.
        split: value of the column `split` for images without one in the annotations; no such column if neither has one.
        images_per_shard: images of a shard; a run that is killed loses at most one shard.
        skip_broken: whether to skip and list records that cannot be used, instead of ending with an error.

    Raises:
        DataError: an input or a record cannot be used, no record can, or annotated images have no features. Without
            a complete shard no files are left.
        OSError: the output is not empty, or cannot be written.

    Example:

    ```python
    >>> import numpy
    >>> from pathlib import Path
    >>> from hf_ngsan.data.conversion import convert_features

    >>> Path("videos").mkdir()
    >>> for name in ("dog", "cat"):
    ...     numpy.save(f"videos/{name}.npy", numpy.ones((1, 8, 4), dtype="float32"))
    >>> convert_features(["videos"], "converted").num_rows
    2

    ```
    """
    check_options(dtype, boxes, grid_size, split, images_per_shard)
    output = Path(output)
    if not is_empty(output):
        raise FileExistsError(f"{output} exists already; choose another folder.")
    check_place(output)
    skipped: list[dict] = []
    tolerated = skipped if skip_broken else None
    paths = [Path(one) for one in inputs]
    annotations = Annotations([path for path in paths if is_annotation(path)], tolerated)
    sources = list(open_all([path for path in paths if not is_annotation(path)], source_format, tolerated))
    if not sources and skipped:
        raise DataError(f"No input can be read; the first: {skipped[0]['reason']}")
    if not sources:
        raise DataError(f"There are no features among {', '.join(map(str, paths))}; give a file or folder of features.")
    if not skip_broken:
        check_names(annotations, sources)
    files = [*(file for source in sources for file in source.files), *annotations.paths]
    key = key_of_inputs(files, sources, dtype, boxes, grid_size, split)
    folder = ConversionFolder(temporary_path(output))
    refusal = DataError(f"Another conversion is writing {output}; wait for it or choose another folder.")
    lock = FolderLock(folder.path, refusal)
    lock.acquire(seconds=0)
    try:
        plan = ConversionPlan(
            key,
            [str(source.path) for source in sources],
            dtype,
            has_captions=annotations.has_captions or any(source.has_captions() for source in sources),
            has_split=bool(split) or annotations.has_split or any(source.has_split() for source in sources),
        )
        maker = RowMaker(plan, annotations, boxes, grid_size, split)
        conversion = Conversion(folder, plan, sources, maker, images_per_shard, skip_broken)
        conversion.run()
        skipped += [entry for record in folder.records() for entry in record.skipped]
        skipped += without_features(annotations, conversion.ids.seen, conversion.names, skip_broken)
        num_rows = folder.make_dataset(f"converted from {', '.join(plan.inputs)}", skipped)
        result = conversion.result(num_rows, skipped)
        lock.release()
        if output.exists():
            output.rmdir()
        rename_durably(folder.path, output)
        return result
    finally:
        for source in sources:
            source.close()
        lock.release()
        if folder.path.exists() and not folder.records():
            shutil.rmtree(folder.path)


def check_options(
    dtype: str, boxes: str | None, grid_size: tuple[int, int] | None, split: str | None, images_per_shard: int
) -> None:
    if dtype not in DTYPES:
        raise DataError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}.")
    if boxes is not None and boxes not in CONVENTIONS:
        raise DataError(f"The convention of the boxes is {boxes!r}; it must be one of {', '.join(CONVENTIONS)}.")
    if grid_size is not None and min(grid_size) < 1:
        raise DataError(f"grid_size is {grid_size}; its rows and columns must be above 0.")
    if split is not None and not (split.strip() and split.isprintable()):
        raise DataError(f"The split is {split!r}; name it, such as train, or leave it out.")
    if images_per_shard < 1:
        raise DataError(f"images_per_shard is {images_per_shard}; it must be above 0.")


def open_all(inputs: list[Path], source_format: str | None, skipped: list[dict] | None) -> Iterator[Source]:
    """Yields the sources of the inputs; one that cannot be opened is added to `skipped`, or is an error without it."""
    for path in inputs:
        try:
            yield from open_sources(path, source_format)
        except DataError as error:
            if skipped is None or not path.exists():
                raise
            skipped.append(skipped_entry(None, path, error))


def is_annotation(path: Path) -> bool:
    return path.suffix.lower() == ".json" and path.is_file()


def key_of_inputs(paths: Sequence[Path], sources: Sequence[Source], *options: object) -> str:
    """Returns a key of options and inputs: path, size and time of each, and the names within a folder."""
    digest = hashlib.sha256(json.dumps([FORMAT, *options]).encode())
    for path in paths:
        status = path.stat()
        digest.update(json.dumps([str(path.resolve()), status.st_size, status.st_mtime_ns]).encode())
    for source in sources:
        if source.path.is_dir():
            digest.update(json.dumps([entry.name for entry in source.entries()]).encode())
    return digest.hexdigest()


def without_features(
    annotations: Annotations, image_ids: Collection[int], names: Collection[str], skip_broken: bool
) -> list[dict]:
    """Returns an entry for each annotated image without features; raises a DataError unless they may be skipped."""
    missing = annotations.missing(image_ids, names)
    place = ", ".join(map(str, annotations.paths))
    if missing and not skip_broken:
        raise DataError(
            f"{len(missing)} images of {place} have no features: {listing(missing)}; --skip-broken leaves"
            " them out and lists them all."
        )
    return [skipped_entry(one, place, DataError(f"{place}: {one} has no features.")) for one in missing]


def check_names(annotations: Annotations, sources: Sequence[Source]) -> None:
    """Raises a DataError for annotated images without features, if their names are known before features are read."""
    if all(isinstance(source, ListedSource) for source in sources):
        names = {entry.name for source in sources for entry in source.entries() if entry.name is not None}
        are_ids = all(source.is_numbered for source in sources)
        ids = {number for name in names if (number := number_of(name)) is not None} if are_ids else set()
        without_features(annotations, ids, set() if are_ids else names, skip_broken=False)


def skipped_entry(image_id: int | str | None, place: object, error: DataError) -> dict:
    return {"image_id": image_id, "file_name": str(place), "reason": str(error)}


@dataclass
class Conversion:
    """The work of a conversion: records to rows, shard by shard, from the end of the folder.

    Attributes:
        ids: ids of the images that have rows.
        names: their names, if ids are only places.
        num_new: rows of this run.
    """

    folder: ConversionFolder
    plan: ConversionPlan
    sources: Sequence[Source]
    maker: RowMaker
    images_per_shard: int
    skip_broken: bool
    names: set[str] = field(default_factory=set)
    num_new: int = 0

    def __post_init__(self) -> None:
        self.ids = ImageIds(self.sources)

    def run(self) -> None:
        chunk, first, place = self.resume()
        for number in range(first, len(self.sources)):
            source = self.sources[number]
            entries = source.entries(place)
            with ProgressDisplay(f"converting {source.path.name}", source.total, place, source.unit) as display:
                while self.write_shard(chunk, number, entries, display):
                    chunk += 1
            place = 0

    def resume(self) -> tuple[int, int, int]:
        """Returns the chunk after the complete shards, the number of its source, and its place there."""
        metadata = self.folder.path / METADATA
        records = self.folder.records()
        try:
            recorded = json.loads(metadata.read_text(encoding="utf-8"))
            is_own = recorded["key"] == self.plan.key
            chunks = [record.chunk for record in records]
            is_whole = bool(records) and chunks == list(range(len(chunks)))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            is_own = is_whole = False
        if not (is_own and is_whole):
            self.folder.remove()
            self.folder.remove_leftovers()
            return 0, 0, 0
        self.folder.remove_leftovers()
        self.folder.refuse_changed_shards(record for record in records if record.num_rows)
        for name, value in recorded.items():
            setattr(self.plan, name, value)
        self.ids.seen = set(self.folder.values("image_id"))
        if self.plan.has_names:
            self.names = set(self.folder.values("file_name"))
        source, place = records[-1].end
        return len(records), source, place

    def write_shard(self, chunk: int, number: int, entries: Iterator[Entry], display: ProgressDisplay) -> bool:
        """Writes one shard of the next entries of a source; returns False if there are none."""
        rows: list[dict] = []
        num_bytes = 0
        skipped: list[dict] = []
        shard: ShardWriter | None = None
        count, end = 0, 0
        try:
            for entry in entries:
                count, end = count + 1, entry.end
                row = self.read_or_skip(number, entry, skipped)
                if row is not None:
                    shard = shard or self.begin_shard(chunk)
                    rows.append(row)
                    num_bytes += bytes_of(row)
                if shard and (len(rows) == ROWS_PER_RECORD_BATCH or num_bytes > BYTES_PER_RECORD_BATCH):
                    shard.write_table(table_of(rows, self.plan.columns))
                    rows.clear()
                    num_bytes = 0
                display.update(end)
                if count == self.images_per_shard:
                    break
            if not count:
                return False
            shard = shard or ShardWriter(self.folder, Features({"image_id": Value("int64")}), 0, chunk, self.plan.key)
            if rows:
                shard.write_table(table_of(rows, self.plan.columns))
            shard.commit(skipped, end=(number, end))
            return True
        finally:
            if shard:
                shard.discard()

    def begin_shard(self, chunk: int) -> ShardWriter:
        """Returns the writer of a shard, after the description of the folder is written."""
        metadata = self.folder.path / METADATA
        if not metadata.exists():
            write_text_atomically(metadata, json.dumps(asdict(self.plan), indent=2))
        return ShardWriter(self.folder, self.plan.columns, 0, chunk, self.plan.key)

    def read_or_skip(self, number: int, entry: Entry, skipped: list[dict]) -> dict | None:
        """Returns the row of an entry, or None for one that was skipped."""
        name = entry.name
        try:
            name, record = entry.read()
            where = entry.where if entry.name else f"{entry.where} (image {name})"
            image_id, is_numbered = self.ids.of(number, entry, name, where), self.sources[number].is_numbered
            row = self.maker.make_row(image_id, name, is_numbered, record, where)
        except DataError as error:
            if not (self.skip_broken or isinstance(error, LeftOutError)):
                kept = "; what was converted is kept" if self.folder.records() else ""
                raise DataError(f"{str(error).rstrip('.')} (--skip-broken leaves it out{kept}).") from error
            skipped.append(skipped_entry(name, entry.where, error))
            return None
        self.ids.seen.add(image_id)
        if not is_numbered:
            self.names.add(name)
        self.num_new += 1
        return row

    def result(self, num_rows: int, skipped: list[dict]) -> ConversionResult:
        regions = self.folder.num_regions() if self.plan.feature_size else (0, 0)
        return ConversionResult(num_rows, self.num_new, self.plan.feature_size, regions, skipped, self.plan.notes)
