"""The folder of an index: embeddings and their items in atomically written shards, and a description.

```text
index.json                      the description (IndexDescription)
shard-NNNNNN/embeddings.npy     float16, memory-mapped
shard-NNNNNN/items.json         names, captions, columns and stamps of items, and skipped items
shard-NNNNNN/thumbnails.zip     small images, for figures
backend.json                    the search backend
milvus/                         earlier collections of Milvus (MilvusSearch)
```

Opening an index checks names and sizes of its files; `hf-ngsan inspect` checks their checksums.
"""

import hashlib
import json
import zipfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io import folders
from ..io.files import FileStamp, write_text_atomically
from ..io.folders import DamagedFolderError, check_folder, find_folder

DESCRIPTION = "index.json"
EMBEDDINGS, ITEMS, THUMBNAILS = "embeddings.npy", "items.json", "thumbnails.zip"
BACKEND, EXACT = "backend.json", "exact"
REMAKE = "delete this folder and run the same hf-ngsan index again"


class IndexFolderError(ValueError):
    """A folder without a usable index; the message has the folder and a remedy."""


@dataclass(frozen=True)
class IndexDescription:
    """The description of an index."""

    model: str  # folder or Hub name of the model
    fingerprint: str  # checksum of the model and its preprocessing
    source: str  # name of the source of the items, for messages
    source_checksum: str  # checksum of the items and their order
    dimension: int  # embedding dimension
    num_items: int  # including unreadable items
    items_per_shard: int  # items of each shard except the last
    version: int = 3

    @property
    def checksum(self) -> str:
        """Checksum of the description; shards record it to identify their index."""
        parts = (self.fingerprint, self.source_checksum, self.dimension, self.num_items, self.items_per_shard)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class ShardItems(NamedTuple):
    """The content of `items.json` of a shard."""

    names: list[str]  # names of the items with embeddings, like captions and columns
    captions: list[list[str]] | None
    columns: list[dict[str, Any]] | None
    skipped: list[list[str]]  # name and reason of each other item
    stamps: dict[int, FileStamp]  # stamps of the items' files, by item number


class Shard:
    """A shard of an index; its files are read when they are needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.verify(read=[])

    def verify(self, read: Collection[str] | None = None) -> None:
        """Raises an IndexFolderError for a missing or truncated file, or a changed file in `read` (`None`: any)."""
        try:
            check_folder(self.folder, (EMBEDDINGS, ITEMS, THUMBNAILS), read)
        except DamagedFolderError as error:
            raise IndexFolderError(f"{str(error).rstrip('.')}; {REMAKE}.") from None

    @cached_property
    def embeddings(self) -> np.ndarray:
        return np.lib.format.open_memmap(self.folder / EMBEDDINGS, mode="r")

    @cached_property
    def items(self) -> ShardItems:
        """The items without their stamps, which need much memory and are not used by searches."""
        return self.read_items()._replace(stamps={})

    def read_items(self) -> ShardItems:
        content = json.loads((self.folder / ITEMS).read_bytes())
        stamps = {int(item): FileStamp(*stamp) for item, stamp in content["stamps"].items()}
        captions, columns = content.get("captions"), content.get("columns")
        return ShardItems(content["names"], captions, columns, content["skipped"], stamps)


class IndexFolder:
    """Embeddings in shards; the place of an embedding is shard number x `items_per_shard` + row in the shard."""

    def __init__(self, folder: Path, description: IndexDescription) -> None:
        self.folder, self.description = folder, description
        self.opened: dict[int, Shard] = {}
        self.written_at = written_at(folder)

    @classmethod
    def begin(cls, folder: Path, description: IndexDescription, besides: Collection[str] = ()) -> "IndexFolder":
        """Makes a new index, or resumes one with the same description; `besides` are files of the caller."""
        check_new_index(folder)
        if not is_index(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_text_atomically(folder / DESCRIPTION, json.dumps(asdict(description), indent=1) + "\n")
            return cls(folder, description)
        old = read_description(folder)
        if replace(description, items_per_shard=old.items_per_shard).checksum != old.checksum:
            other = f"of other images ({old.num_items} of {old.source}) or by another model ({old.model})"
            raise IndexFolderError(f"{folder} is an index {other}; give a new folder.")
        folders.remove_leftovers(folder, besides)
        index = cls(folder, old)
        for number in index.written_shards():
            index.shard(number)
        return index

    @classmethod
    def open(cls, folder: Path) -> "IndexFolder":
        """Opens a complete index; raises an IndexFolderError if there is none."""
        folder = find_folder(folder)
        before = written_at(folder)
        index = cls(folder, read_description(folder))
        missing = len(index.missing_shards())
        if written_at(folder) != before:  # another index has replaced it meanwhile
            return cls.open(folder)
        if missing:
            raise IndexFolderError(
                f"{folder} is not complete: {missing} of its {index.num_shards} parts are missing; run the same "
                "hf-ngsan index command again to complete it."
            )
        return index

    @property
    def is_current(self) -> bool:
        """Whether the index has not been replaced since it was opened."""
        return written_at(self.folder) == self.written_at

    def current(self) -> "IndexFolder":
        """Returns this index, or the one that has replaced it."""
        return self if self.is_current else IndexFolder.open(self.folder)

    @property
    def num_shards(self) -> int:
        return -(-self.description.num_items // self.description.items_per_shard)

    def shard_folder(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}"

    def shard_items(self, number: int) -> range:
        size = self.description.items_per_shard
        return range(number * size, min((number + 1) * size, self.description.num_items))

    def written_shards(self) -> list[int]:
        return [number for number in range(self.num_shards) if self.shard_folder(number).is_dir()]

    def missing_shards(self) -> list[int]:
        return sorted({*range(self.num_shards)} - {*self.written_shards()})

    def write_shard(
        self,
        number: int,
        names: Sequence[str],
        embeddings: np.ndarray,
        skipped: Sequence[Sequence[str]] = (),
        thumbnails: Sequence[bytes] = (),
        stamps: Mapping[int, FileStamp] | None = None,
        captions: Sequence[Sequence[str]] | None = None,
        columns: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Adds a shard of embeddings `(items, dimension)` atomically; Milvus can filter by the columns."""

        def write(folder: Path) -> None:
            np.save(folder / EMBEDDINGS, embeddings.astype(np.float16))
            content = {
                "shard": number,
                "index": self.description.checksum,
                "names": list(names),
                "skipped": [list(entry) for entry in skipped],
                "stamps": stamps or {},
                **({} if captions is None else {"captions": [list(texts) for texts in captions]}),
                **({} if columns is None else {"columns": [dict(values) for values in columns]}),
            }
            (folder / ITEMS).write_text(json.dumps(content), encoding="utf-8")
            with zipfile.ZipFile(folder / THUMBNAILS, "w") as archive:
                for row, thumbnail in enumerate(thumbnails):
                    archive.writestr(zipfile.ZipInfo(f"{row:06d}.jpg"), thumbnail)

        folders.write_folder_atomically(self.shard_folder(number), write)
        self.opened.pop(number, None)

    def shard(self, number: int) -> Shard:
        if number not in self.opened:
            self.opened[number] = Shard(self.shard_folder(number))
        return self.opened[number]

    def items(self) -> tuple[list[str], list[list[str]]]:
        """Returns the names of all items with an embedding, and names and reasons of the others."""
        shard_items = [self.shard(number).items for number in range(self.num_shards)]
        names = [name for items in shard_items for name in items.names]
        return names, [entry for items in shard_items for entry in items.skipped]

    def stamps(self) -> dict[int, FileStamp]:
        """Returns the stamps of the items in written shards, by item number."""
        shard_stamps = [self.shard(number).read_items().stamps for number in self.written_shards()]
        return {item: stamp for stamps in shard_stamps for item, stamp in stamps.items()}

    def embeddings(self) -> list[np.ndarray]:
        """Returns the memory-mapped embeddings of each shard, float16 `(items, dimension)`."""
        return [self.shard(number).embeddings for number in range(self.num_shards)]

    def at(self, places: np.ndarray) -> list[tuple[Shard, int]]:
        """Returns the shard and the row in this shard of each place."""
        numbers, rows = np.divmod(places, self.description.items_per_shard)
        return [(self.shard(number), row) for number, row in zip(numbers.tolist(), rows.tolist(), strict=True)]

    def best(self, places: np.ndarray, query: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the largest exact inner products among some places, in descending order, and their places."""
        scores = (self.embeddings_at(places).astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
        order = np.lexsort((places, -scores))[:top_k]
        return scores[order], places[order]

    def embeddings_at(self, places: np.ndarray) -> np.ndarray:
        """Returns the embeddings at some places, float32 `(places, dimension)`, without reading others."""
        rows = [shard.embeddings[row] for shard, row in self.at(places)]
        return np.array(rows, np.float32).reshape(-1, self.description.dimension)

    def items_at(self, places: np.ndarray) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
        """Returns names, captions and scalar columns of the items at some places; empty if unknown."""
        rows = []
        for shard, row in self.at(places):
            items = shard.items
            captions = tuple(items.captions[row]) if items.captions else ()
            rows.append((items.names[row], captions, items.columns[row] if items.columns else {}))
        return rows

    def thumbnails_at(self, places: np.ndarray) -> list[bytes | None]:
        """Returns the JPEG thumbnails of the items at some places; None for a missing one."""
        thumbnails: list[bytes | None] = []
        with ExitStack() as opened:
            archive_of = cache(lambda folder: opened.enter_context(zipfile.ZipFile(folder / THUMBNAILS)))
            for shard, row in self.at(places):
                archive = archive_of(shard.folder)
                thumbnails.append(archive.read(f"{row:06d}.jpg") if archive.namelist() else None)
        return thumbnails

    def thumbnail_at(self, place: int) -> bytes | None:
        """Returns the JPEG thumbnail of the item at a place; None if there is none."""
        return self.thumbnails_at(np.array([place]))[0]

    def all_places(self) -> np.ndarray:
        """Returns the places of all embeddings, int64 `(items,)`."""
        return np.concatenate([self.places(number) for number in range(self.num_shards)])

    def places(self, number: int) -> np.ndarray:
        """Returns the places of a shard's embeddings, int64 `(items,)`."""
        return number * self.description.items_per_shard + np.arange(len(self.shard(number).embeddings))

    def checksum(self) -> str:
        """Returns a checksum of the embeddings and their places."""
        digest = hashlib.sha256(self.description.fingerprint.encode())
        for number in range(self.num_shards):
            digest.update((self.shard_folder(number) / folders.MANIFEST).read_bytes())
        return digest.hexdigest()

    @property
    def backend(self) -> str:
        """The search backend of this index, a spec for [`~hf_ngsan.retrieval.open_backend`]."""
        file = self.folder / BACKEND
        return json.loads(file.read_bytes()) if file.is_file() else EXACT

    @backend.setter
    def backend(self, spec: str) -> None:
        write_text_atomically(self.folder / BACKEND, json.dumps(spec) + "\n")


def written_at(folder: Path) -> tuple[int, int] | None:
    """Returns a value that changes when the index in a folder is replaced; None if there is no index."""
    try:
        status = (folder / DESCRIPTION).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def is_index(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file()


def check_new_index(folder: Path) -> None:
    """Raises an IndexFolderError unless a folder is new or already an index."""
    if not is_index(folder) and not folders.is_empty(folder):
        raise IndexFolderError(f"{folder} exists and is not an index; give a new folder.")


def read_description(folder: Path) -> IndexDescription:
    """Returns the description of an index; raises an IndexFolderError for other folders."""
    if not is_index(folder):
        raise IndexFolderError(f"{folder} is not an index ({DESCRIPTION} is missing); make one with hf-ngsan index.")
    return IndexDescription(**json.loads((folder / DESCRIPTION).read_bytes()))
