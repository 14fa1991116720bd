"""The folder that an extraction fills: shards that appear whole or not at all, and become one dataset at the end.

extraction.json       what the features are: backbone, checksums, columns (`read_extraction`)
shard-GGG-CCCCCC.arrow, records/shard-GGG-CCCCCC.json
                      rows of one chunk of a list of images, and the record without which they do not count
state.json, dataset_info.json
                      what `datasets.load_from_disk` needs; written last
skipped.json          images that could not be read
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_origin

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter

from ..files import (
    TEMPORARY_PREFIX,
    FileStamp,
    flush_to_disk,
    is_empty,
    is_unchanged,
    naming,
    rename_durably,
    stamp_of,
    temporary_path,
    write_text_atomically,
)
from ..provenance import description_of, provenance_difference
from .errors import ExtractionError

FORMAT = 1
METADATA, RECORDS, STATE, INFO, SKIPPED = (
    "extraction.json",
    "records",
    "state.json",
    "dataset_info.json",
    "skipped.json",
)
METADATA_TYPES = {
    "format": object,
    "backbone": str,
    "kind": str,
    "feature_size": int,
    "dtype": str,
    "columns": list,
    "images_per_shard": int,
}
ROWS_PER_RECORD_BATCH = 64


def read_extraction(directory: str | os.PathLike) -> dict:
    """Returns what the features in a folder were made with.

    Returns:
        `backbone` (the name it was loaded by), `kind`, `backbone_type`, `feature_size`, `grid_size`, `num_regions`,
        `checksums` (see [`vision_provenance`]), `dtype`, `columns`, `images_per_shard`, `versions` of the packages, and
        `format`.

    Raises:
        ExtractionError: the folder was not written by an extraction, or its description is damaged.
    """
    file = Path(directory) / METADATA
    try:
        metadata = json.loads(file.read_text(encoding="utf-8"))
        provenance_difference(metadata, metadata)
        complete = all(isinstance(metadata[name], kind) for name, kind in METADATA_TYPES.items())
    except (FileNotFoundError, NotADirectoryError):
        raise ExtractionError(
            f"{directory} has no {METADATA}, so it is not known what its features were made with; give a folder "
            "written by hf-ngsan extract."
        ) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        complete = False
    if not complete:
        raise ExtractionError(f"{file} is damaged; extract the features again into another folder.")
    if metadata["format"] != FORMAT:
        raise ExtractionError(f"{file} has format {metadata['format']!r}, but this version reads {FORMAT}; update it.")
    return metadata


def check_output_folder(folder: Path) -> None:
    """Refuses a folder that is none or holds something else than an extraction; nothing is written.

    Raises:
        ExtractionError: see above.
    """
    if folder.exists() and not folder.is_dir():
        raise ExtractionError(f"The output folder {folder} is a file; choose another.")
    if not is_empty(folder) and not (folder / METADATA).is_file():
        raise ExtractionError(
            f"The output folder {folder} holds files that are no extraction ({METADATA} is missing); choose another."
        )
    place = folder
    while not os.path.lexists(place):
        place = place.absolute().parent
    if not place.is_dir():
        raise ExtractionError(f"The output folder {folder} cannot be made: {place} is a file; choose another.")
    if not os.access(place, os.W_OK):
        raise ExtractionError(f"The output folder {folder} cannot be written to; choose another.")


@dataclass(frozen=True)
class Record:
    """A shard that is complete.

    Attributes:
        generation, chunk: its place among the shards. A list of images is cut into chunks; another list, or images of a
            chunk that could be read only later, belong to a later generation.
        image_list: checksum of the list.
        num_rows, num_bytes, sha256: of the Arrow file; without rows there is none.
        skipped: `{"image_id", "file_name", "reason"}` of the images that could not be read.
        mtime_ns: when the Arrow file was last changed.
        images: a [`~hf_ngsan.files.FileStamp`] of each image that was read, by its id. Earlier versions recorded
            neither.
    """

    generation: int
    chunk: int
    image_list: str
    num_rows: int
    num_bytes: int
    sha256: str
    skipped: list[dict]
    mtime_ns: int = 0
    images: dict[str, FileStamp] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in fields(self):
            kind: Any = entry.type
            if not isinstance(getattr(self, entry.name), get_origin(kind) or kind):
                raise TypeError(f"{entry.name} is no {kind}")
        for skipped in self.skipped:
            if not isinstance(skipped, dict) or skipped.keys() != {"image_id", "file_name", "reason"}:
                raise TypeError("skipped has an entry without image_id, file_name and reason")
        self.images.update({image_id: FileStamp(*stamp) for image_id, stamp in self.images.items()})

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self.num_bytes, self.mtime_ns, self.sha256)

    @property
    def name(self) -> str:
        return shard_name(self.generation, self.chunk)


def shard_name(generation: int, chunk: int) -> str:
    return f"shard-{generation:03d}-{chunk:06d}"


class FeatureFolder:
    """The folder of an extraction.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)

    def begin(self, metadata: dict) -> dict:
        """Describes the features that the folder is to hold, or check that those described may be added to it.

        Where an earlier extraction has left no rows, it is begun anew.

        Returns:
            The metadata of the folder.

        Raises:
            ExtractionError: it holds features of another backbone or preprocessing, other columns, or features that
                were changed since.
        """
        filled = [record for record in self.records() if record.num_rows]
        if filled:
            recorded = read_extraction(self.path)
            refuse_to_mix(self.path, recorded, metadata)
            self.refuse_changed_shards(filled)
        else:
            self.remove()
            recorded = metadata
            write_text_atomically(self.path / METADATA, json.dumps(metadata, indent=2))
        self.remove_leftovers()
        return recorded

    def refuse_changed_shards(self, records: Iterable[Record]) -> None:
        for record in records:
            file = self.path / f"{record.name}.arrow"
            if not is_unchanged(file, record.stamp):
                raise ExtractionError(
                    f"{file} has changed since its features were extracted; delete it, and its images are extracted "
                    "again, or choose another output folder."
                )

    def remove_leftovers(self) -> None:
        """Deletes half-written shards, and those that lack a record; no other process may be writing."""
        kept = {f"{record.name}.arrow" for record in self.records()}
        for file in [*self.path.glob("shard-*.arrow"), *self.path.glob(f"{TEMPORARY_PREFIX}shard-*")]:
            if file.name not in kept:
                file.unlink()
        for file in (self.path / RECORDS).glob(f"{TEMPORARY_PREFIX}*"):
            file.unlink()

    def records(self) -> list[Record]:
        """Returns the complete shards in the order of their rows; one whose file is missing or cut is not complete."""
        records = []
        for file in sorted((self.path / RECORDS).glob("shard-*.json")):
            try:
                record = Record(**json.loads(file.read_text(encoding="utf-8")))
                data = self.path / f"{record.name}.arrow"
                if not record.num_rows or data.stat().st_size == record.num_bytes:
                    records.append(record)
            except (OSError, ValueError, TypeError, RecursionError):  # its chunk is extracted again
                continue
        return sorted(records, key=lambda record: (record.generation, record.chunk))

    def rows_by_image_id(self, records: Iterable[Record]) -> dict[int, dict]:
        """Returns file name, split and captions, as far as there are any, of every image that has features."""
        rows: dict[int, dict] = {}
        for record in records:
            if record.num_rows:
                shard = Dataset.from_file(str(self.path / f"{record.name}.arrow"))
                wanted = [name for name in ("image_id", "file_name", "split", "captions") if name in shard.column_names]
                rows |= {row.pop("image_id"): row for row in shard.select_columns(wanted).to_list()}
        return rows

    def publish(self, metadata: Mapping, expected: Iterable[str] = ()) -> tuple[int, list[dict]]:
        """Makes the complete shards one dataset for `datasets.load_from_disk`, and list the skipped images.

        Args:
            metadata: of the folder.
            expected: names of shards that all processes together must have completed.

        Returns:
            The number of its rows, and the skipped images.

        Raises:
            ExtractionError: a shard is missing; or there is no row at all, and what was written is removed.
        """
        records = self.records()
        missing = set(expected) - {record.name for record in records}
        if missing:
            raise ExtractionError(
                f"{len(missing)} shards are missing from {self.path}, {min(missing)} among them; all nodes must share "
                "that folder. Start again to extract them."
            )
        filled = [record for record in records if record.num_rows]
        unread = {entry["image_id"]: entry for record in records for entry in record.skipped}
        if not filled:
            self.remove()
            first = next(iter(unread.values()))
            raise ExtractionError(
                f"None of the {len(unread)} images can be read, so {self.path} was not written; the first: "
                f"{first['reason']}"
            )
        present = self.rows_by_image_id(filled) if unread else {}
        skipped = [entry for image_id, entry in unread.items() if image_id not in present]
        write_text_atomically(self.path / SKIPPED, json.dumps(skipped, indent=2, ensure_ascii=False))
        info, state = self.describe(filled, metadata)
        write_text_atomically(self.path / INFO, json.dumps(info, indent=2))
        write_text_atomically(self.path / STATE, json.dumps(state, indent=2))
        return sum(record.num_rows for record in filled), skipped

    def describe(self, records: list[Record], metadata: Mapping) -> tuple[dict, dict]:
        """Returns the two JSON files of a saved dataset, as `datasets` writes them for one row, but with all shards."""
        sample = Dataset.from_file(str(self.path / f"{records[0].name}.arrow")).select(range(1))
        sample.info.description = description_of(metadata)
        temporary = temporary_path(self.path / "sample")
        shutil.rmtree(temporary, ignore_errors=True)
        with without_progress_bars():
            sample.save_to_disk(str(temporary))
        info, state = (json.loads((temporary / name).read_text(encoding="utf-8")) for name in (INFO, STATE))
        shutil.rmtree(temporary)
        state["_data_files"] = [{"filename": f"{record.name}.arrow"} for record in records]
        state["_fingerprint"] = hashlib.sha256("".join(record.sha256 for record in records).encode()).hexdigest()[:16]
        return info, state

    def remove(self) -> None:
        """Deletes what is said of the rows, where there are none (any more)."""
        for name in (STATE, INFO, SKIPPED, METADATA):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / RECORDS, ignore_errors=True)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """`datasets` shows no bars inside the `with` block."""
    were_disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_disabled:
            datasets.enable_progress_bars()


def refuse_to_mix(folder: Path, recorded: Mapping, current: Mapping) -> None:
    """Raises an ExtractionError if features described by `current` do not belong into a folder."""
    difference = provenance_difference(recorded, current)
    if difference:
        raise ExtractionError(
            f"{folder} holds features of {recorded['backbone']}, and those of {current['backbone']} would now have "
            f"{difference}; features that are made differently do not mix: choose another output folder."
        )
    if recorded["dtype"] != current["dtype"]:
        raise ExtractionError(f"{folder} holds {recorded['dtype']} features; use --dtype {recorded['dtype']}.")
    for column in ("captions", "split"):
        has, gets = column in recorded["columns"], column in current["columns"]
        if has != gets:
            raise ExtractionError(
                f"The rows of {folder} have {'a' if has else 'no'} column {column!r}, those to be added have "
                f"{'one' if gets else 'none'}; choose another output folder, or give images "
                f"{'with' if has else 'without'} it."
            )


class ShardWriter:
    """Writes one shard under a temporary name; `commit` makes it count.

    Args:
        folder: the extraction's.
        features: columns of a row.
        generation, chunk, image_list: see [`Record`].
    """

    def __init__(self, folder: FeatureFolder, features: Features, generation: int, chunk: int, image_list: str) -> None:
        self.folder = folder.path
        self.generation, self.chunk, self.image_list = generation, chunk, image_list
        name = f"{shard_name(generation, chunk)}.arrow"
        self.file = self.folder / name
        self.temporary = temporary_path(self.file)
        self.writer = ArrowWriter(path=str(self.temporary), features=features, writer_batch_size=ROWS_PER_RECORD_BATCH)
        self.num_rows = 0

    def write(self, row: Mapping) -> None:
        with naming(self.file):
            self.writer.write(row)
        self.num_rows += 1

    def commit(self, skipped: list[dict], images: dict[str, FileStamp]) -> None:
        """Flushes, renames and records the shard, in this order."""
        stamp = FileStamp(0, 0, "")
        if self.num_rows:
            with naming(self.file):
                self.writer.finalize()
                flush_to_disk(self.temporary)
            stamp = stamp_of(self.temporary)
            rename_durably(self.temporary, self.file)
        else:
            self.discard()
        record = Record(
            self.generation,
            self.chunk,
            self.image_list,
            self.num_rows,
            stamp.num_bytes,
            stamp.sha256,
            skipped,
            stamp.mtime_ns,
            images,
        )
        write_text_atomically(self.folder / RECORDS / f"{record.name}.json", json.dumps(asdict(record), indent=2))

    def discard(self) -> None:
        self.writer.close()
        self.temporary.unlink(missing_ok=True)
