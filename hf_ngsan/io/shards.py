"""A folder of rows in shards that are written atomically; at the end, they become one dataset.

```text
shard-GGG-CCCCCC.arrow, records/shard-GGG-CCCCCC.json
                      rows of a chunk of the input, and their record; rows without a record are ignored
state.json, dataset_info.json
                      files for `datasets.load_from_disk`; written last
skipped.json          images that could not be read, with reasons
```
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter

from . import files
from .files import FileStamp, sha256, temporary_path, write_text_atomically
from .folders import DamagedFolderError

RECORDS, STATE, INFO, SKIPPED = "records", "state.json", "dataset_info.json", "skipped.json"
ROWS_PER_RECORD_BATCH = 64  # rows that are kept in memory before they are written


@dataclass(frozen=True)
class ShardRecord:
    """The record of a complete shard."""

    generation: int  # increases for another list, and for images that became readable later
    chunk: int  # chunk of the list of images
    image_list: str  # checksum of the list
    num_rows: int  # there is no Arrow file if it is 0
    num_bytes: int
    sha256: str
    skipped: list[dict]  # `{"image_id", "file_name", "reason"}` of the images that could not be read
    mtime_ns: int = 0
    images: dict[str, FileStamp] = field(default_factory=dict)  # stamps of the images that were read, by id
    end: list[int] = field(default_factory=list)  # position in the input, for resuming

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self.num_bytes, self.mtime_ns, self.sha256)

    @property
    def name(self) -> str:
        return shard_name(self.generation, self.chunk)

    @property
    def file(self) -> str:
        return f"{self.name}.arrow"


def shard_name(generation: int, chunk: int) -> str:
    return f"shard-{generation:03d}-{chunk:06d}"


class ShardFolder:
    """A folder of shards; subclasses define the file with its description, and the error for an unusable folder."""

    metadata_name: str
    error: type[ValueError]

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)

    def refuse_changed_shards(self, records: Iterable[ShardRecord]) -> None:
        for record in records:
            file = self.path / record.file
            if not files.is_unchanged(file, record.stamp):
                remedy = "delete it to write them again, or choose another output folder"
                raise self.error(f"{file} has changed since its rows were written; {remedy}.")

    def remove_leftovers(self) -> None:
        """Deletes incomplete shards and shards without a record; no other process may be writing."""
        kept = {record.file for record in self.records()}
        for file in [*self.path.glob("shard-*.arrow"), *self.path.glob(f"{files.TEMPORARY_PREFIX}shard-*")]:
            if file.name not in kept:
                file.unlink()
        for file in (self.path / RECORDS).glob(f"{files.TEMPORARY_PREFIX}*"):
            file.unlink()

    def records(self, with_images: bool = False) -> list[ShardRecord]:
        """Returns the complete shards in the order of their rows; a missing or truncated file makes one incomplete."""
        records = read_shard_records(self.path, with_images)
        sizes = {file.name: file.stat().st_size for file in self.path.glob("shard-*.arrow")}
        return [record for record in records if not record.num_rows or sizes.get(record.file) == record.num_bytes]

    def make_dataset(self, description: str, skipped: list[dict], expected: Iterable[str] = ()) -> int:
        """Makes the shards, including `expected`, one dataset for `datasets.load_from_disk`; returns its length."""
        records = self.records()
        missing = set(expected) - {record.name for record in records}
        if missing:
            problem = f"{len(missing)} shards are missing from {self.path}, such as {min(missing)}"
            raise self.error(f"{problem}; all nodes must share this folder. Run the command again to write them.")
        filled = [record for record in records if record.num_rows]
        if not filled:
            self.remove_metadata()
            reason = f"the first: {skipped[0]['reason']}" if skipped else "give images."
            raise self.error(f"Nothing was written: all {len(skipped)} images are unreadable; {reason}")
        write_text_atomically(self.path / SKIPPED, json.dumps(skipped, indent=2, ensure_ascii=False))
        # `datasets` writes the description for one row; then all shards are added.
        sample = Dataset.from_file(str(self.path / filled[0].file)).select(range(1))
        sample.info.description = description
        with TemporaryDirectory() as temporary, without_progress_bars():
            sample.save_to_disk(temporary)
            info, state = (json.loads(Path(temporary, name).read_text(encoding="utf-8")) for name in (INFO, STATE))
        state["_data_files"] = [{"filename": record.file} for record in filled]
        state["_fingerprint"] = hashlib.sha256("".join(record.sha256 for record in filled).encode()).hexdigest()[:16]
        write_text_atomically(self.path / INFO, json.dumps(info, indent=2))
        write_text_atomically(self.path / STATE, json.dumps(state, indent=2))
        return sum(record.num_rows for record in filled)

    def remove_metadata(self) -> None:
        for name in (STATE, INFO, SKIPPED, self.metadata_name):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / RECORDS, ignore_errors=True)


def read_shard_records(folder: Path, with_images: bool = False) -> list[ShardRecord]:
    """Returns the intact records of a folder in the order of the rows, with `images` on request."""
    records = []
    for file in (folder / RECORDS).glob("shard-*.json"):
        with suppress(TypeError, ValueError, KeyError):
            fields = json.loads(file.read_bytes())
            images = fields.pop("images").items() if with_images else ()
            stamps = {image_id: FileStamp(*stamp) for image_id, stamp in images}
            records.append(ShardRecord(**{**fields, "images": stamps}))
    return sorted(records, key=lambda record: (record.generation, record.chunk))


def verify_shards(folder: Path) -> int:
    """Compares all shards of a dataset with their checksums; returns their number, or raises an error."""
    names = [entry["filename"] for entry in json.loads((folder / STATE).read_bytes())["_data_files"]]
    checksums = {record.file: record.sha256 for record in read_shard_records(folder)}
    for file in names:
        if not (folder / file).is_file() or sha256(folder / file) != checksums.get(file):
            raise DamagedFolderError(f"{folder} is damaged: {file} or its record is missing or has changed.")
    return len(names)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hides the progress bars of `datasets` inside the `with` block."""
    were_disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_disabled:
            datasets.enable_progress_bars()


class ShardWriter:
    """Writes a shard with these columns under a temporary name; `commit` renames and records it."""

    def __init__(self, folder: ShardFolder, features: Features, generation: int, chunk: int, image_list: str) -> None:
        self.folder = folder.path
        self.generation, self.chunk, self.image_list = generation, chunk, image_list
        self.file = self.folder / f"{shard_name(generation, chunk)}.arrow"
        self.temporary = temporary_path(self.file)
        self.writer = ArrowWriter(path=str(self.temporary), features=features, writer_batch_size=ROWS_PER_RECORD_BATCH)
        self.num_rows = 0

    def write(self, row: Mapping) -> None:
        with files.naming(self.file):
            self.writer.write(row)
        self.num_rows += 1

    def commit(
        self, skipped: list[dict], images: Mapping[str, FileStamp] | None = None, end: Iterable[int] = ()
    ) -> None:
        """Flushes, renames and records the shard, in this order."""
        num_bytes = mtime_ns = 0
        checksum = ""
        if self.num_rows:
            with files.naming(self.file):
                self.writer.finalize()
                files.flush_to_disk(self.temporary)
            status, checksum = self.temporary.stat(), sha256(self.temporary)
            num_bytes, mtime_ns = status.st_size, status.st_mtime_ns
            files.rename_durably(self.temporary, self.file)
        else:
            self.discard()
        place, rows = (self.generation, self.chunk, self.image_list), (self.num_rows, num_bytes, checksum)
        record = ShardRecord(*place, *rows, skipped, mtime_ns, dict(images or {}), list(end))
        write_text_atomically(self.folder / RECORDS / f"{record.name}.json", json.dumps(asdict(record), indent=2))

    def discard(self) -> None:
        self.writer.close()
        self.temporary.unlink(missing_ok=True)
