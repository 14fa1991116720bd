"""The folder of an index: embeddings and their items in shards, each whole or absent, and a description.

```text
index.json                      the description (IndexDescription)
shard-NNNNNN/embeddings.npy     float16, memory-mapped
shard-NNNNNN/items.json         their names, captions, columns and stamps, and skipped items
shard-NNNNNN/thumbnails.zip     small images, for figures
backend.json                    the search backend
usearch/, milvus/               its graph (GraphSearch), or list of rows (MilvusSearch)
```

Opening an index compares names and sizes of its files. A search compares the files that it reads completely with their
checksums; [`Shard.verify`] does so for all files.
"""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..io.fields import FieldError, read_fields, read_json_or_none
from ..io.files import FileStamp, write_text_atomically
from ..io.folders import (
    MANIFEST,
    DamagedFolderError,
    check_folder,
    find_folder,
    is_empty,
    remove_leftovers,
    write_folder_atomically,
)

DESCRIPTION = "index.json"
EMBEDDINGS, ITEMS, THUMBNAILS = "embeddings.npy", "items.json", "thumbnails.zip"
BACKEND, EXACT = "backend.json", "exact"
REMAKE = "delete this folder and run the same hf-ngsan index again"
MAKE = "run the same hf-ngsan index again, which makes it"
VERSION = 3
MAX_THUMBNAIL_BYTES = 2**20
MAX_THUMBNAIL_SIDE = 1024
"""Pixels; a larger image is no thumbnail of ours."""
MAX_SHARDS = 10**6
"""Shards of an index; the names of their folders have six digits."""


class IndexFolderError(ValueError):
    """A folder without a usable index; the message names it and the remedy."""


@dataclass(frozen=True)
class IndexDescription:
    """The description of an index.

    Attributes:
        model: folder or Hub name of the model of the embeddings.
        fingerprint: checksum of the model and its preprocessing.
        source: name of the source of the items, for messages.
        source_checksum: checksum of the items and their order.
        dimension: dimension of an embedding.
        num_items: number of items, unreadable ones included.
        items_per_shard: items of each shard but the last.
        version: version of this format.
    """

    model: str
    fingerprint: str
    source: str
    source_checksum: str
    dimension: int
    num_items: int
    items_per_shard: int
    version: int = VERSION

    @property
    def checksum(self) -> str:
        """Checksum of the description, which shards record to identify their index."""
        parts = (self.fingerprint, self.source_checksum, self.dimension, self.num_items, self.items_per_shard)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class ShardItems:
    """The content of `items.json` of a shard; earlier versions did not write the fields with defaults.

    Attributes:
        names, captions, columns: of the items with embeddings; captions and scalar columns if known.
        skipped: name and reason of each other item.
        stamps: stamps of the items' files, by item number.
        shard, index: number of the shard, and checksum of the index.
    """

    names: list[str]
    skipped: list[list[str]]
    stamps: dict[str, FileStamp]
    shard: int | None = None
    index: str | None = None
    captions: list[list[str]] | None = None
    columns: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        try:
            for text in (*self.names, *(text for name, reason in self.skipped for text in (name, reason))):
                os.fsencode(text)
            "".join(caption for of_item in self.captions or () for caption in of_item).encode()
            list(map(int, self.stamps))
        except ValueError:
            raise FieldError("a name, reason, caption or number") from None
        for field in ("captions", "columns"):
            if getattr(self, field) is not None and len(getattr(self, field)) != len(self.names):
                raise FieldError(field)

    @property
    def stamps_by_number(self) -> dict[int, FileStamp]:
        """The stamps by item number."""
        return {int(item): stamp for item, stamp in self.stamps.items()}


class Shard:
    """One shard of an index; a file is read and checked when it is needed.

    Attributes and methods raise an IndexFolderError for a damaged file.
    """

    def __init__(self, folder: Path, number: int, own: range, description: IndexDescription) -> None:
        self.folder, self.number, self.own, self.description = folder, number, own, description
        self.check(read=[])

    def check(self, read: Collection[str] | None) -> None:
        """Checks names and sizes of the files, and the checksums of those in `read`; None for all."""
        try:
            check_folder(self.folder, (EMBEDDINGS, ITEMS, THUMBNAILS), read)
        except DamagedFolderError as error:
            raise IndexFolderError(f"{str(error).rstrip('.')}; {REMAKE}.") from None

    @cached_property
    def mapped(self) -> np.ndarray:
        """The embeddings, float16 `(items, dimension)`, memory-mapped; their numbers are not checked."""
        try:
            embeddings = np.lib.format.open_memmap(self.folder / EMBEDDINGS, mode="r")
        except Exception as error:  # NumPy raises errors of many types for damaged files
            raise damaged(self.folder / EMBEDDINGS, " ".join(str(error).split())[:200]) from None
        is_table = embeddings.dtype == np.float16 and embeddings.ndim == 2 and len(embeddings) <= len(self.own)
        if not is_table or embeddings.shape[1] != self.description.dimension:
            found = f"{embeddings.dtype} of shape {embeddings.shape}, not float16 of dimension"
            raise damaged(self.folder / EMBEDDINGS, f"it holds {found} {self.description.dimension}")
        return embeddings

    @cached_property
    def embeddings(self) -> np.ndarray:
        """The embeddings, with all numbers read and checked."""
        self.check(read=[EMBEDDINGS])
        if not np.isfinite(self.mapped).all():
            raise damaged(self.folder / EMBEDDINGS, "numbers are not finite")
        return self.mapped

    @cached_property
    def items(self) -> ShardItems:
        """The items without their stamps, which take more memory than all else and which no search needs."""
        return replace(self.read_items(), stamps={})

    def read_items(self) -> ShardItems:
        self.check(read=[ITEMS])
        try:
            items = read_fields(ShardItems, read_json_or_none(self.folder / ITEMS), complete=False)
        except FieldError as error:
            raise damaged(self.folder / ITEMS, f"{error or 'it'} is not what was written") from None
        is_own = items.shard in (None, self.number) and items.index in (None, self.description.checksum)
        # Shards of earlier versions record neither; their stamps alone show where they belong.
        has_own_stamps = all(number in self.own for number in items.stamps_by_number)
        if not (is_own and has_own_stamps):
            raise damaged(self.folder, "it is the shard of another place or of another index")
        if len(items.names) != len(self.mapped) or len(items.names) + len(items.skipped) != len(self.own):
            counts = f"{len(self.mapped)} embeddings, {len(items.names)} names, {len(items.skipped)} skipped items"
            raise damaged(self.folder, f"it has {counts} of {len(self.own)}")
        return items

    def verify(self, thumbnails: bool = False) -> None:
        """Reads every file again and compares it with its checksum; optionally decodes thumbnails too."""
        fresh = Shard(self.folder, self.number, self.own, self.description)  # without cached contents
        fresh.check(read=[THUMBNAILS])
        _ = fresh.embeddings, fresh.items
        with fresh.thumbnails() as archive:
            for row in range(len(archive.namelist())) if thumbnails else ():
                read_thumbnail(archive, row)

    @contextmanager
    def thumbnails(self) -> Iterator[zipfile.ZipFile]:
        """Opens the thumbnails, one of each item or none."""
        try:
            with zipfile.ZipFile(self.folder / THUMBNAILS) as archive:
                names = archive.namelist()
                if names and names != [thumbnail_name(row) for row in range(len(self.mapped))]:
                    raise ValueError(f"it has {len(names)} images for {len(self.mapped)} items")
                yield archive
        except IndexFolderError:
            raise
        except (zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError, OverflowError, zlib.error) as error:
            raise damaged(self.folder / THUMBNAILS, error) from None


def damaged(path: Path, reason: object) -> IndexFolderError:
    return IndexFolderError(f"{path} is damaged: {reason}; {REMAKE}.")


class IndexFolder:
    """Embeddings in shards.

    The place of an embedding is the number of its shard times `items_per_shard`, plus its row there.

    Args:
        folder: folder of the shards.
        description: description of the index.
    """

    def __init__(self, folder: Path, description: IndexDescription) -> None:
        self.folder, self.description = folder, description
        self.opened: dict[int, Shard] = {}
        self.written_at = written_at(folder)

    @classmethod
    def begin(cls, folder: Path, description: IndexDescription, besides: Collection[str] = ()) -> "IndexFolder":
        """Makes a new index, or continues one with the same description.

        Args:
            folder: folder of the index.
            description: description of the index.
            besides: other files of the caller in the folder.

        Raises:
            IndexFolderError: the folder has other files, an index of another model or other items, or a damaged shard.
        """
        if is_index(folder):
            found = read_description(folder)
            if found.fingerprint != description.fingerprint:
                raise IndexFolderError(f"{folder} is an index of another model, {found.model}; name a new folder.")
            same = (found.source_checksum, found.num_items, found.dimension)
            if same != (description.source_checksum, description.num_items, description.dimension):
                raise IndexFolderError(
                    f"{folder} is an index of other images ({found.num_items} of {found.source}); name a new folder."
                )
            remove_leftovers(folder, besides)
            index = cls(folder, found)
            for number in index.written_shards():
                index.shard(number).verify()
            return index
        check_new_index(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / DESCRIPTION, json.dumps(asdict(description), indent=1) + "\n")
        return cls(folder, description)

    @classmethod
    def open(cls, folder: Path) -> "IndexFolder":
        """Opens a complete index.

        Raises:
            FileNotFoundError: the folder does not exist.
            IndexFolderError: the folder has no index, or a damaged or incomplete one.
        """
        folder = find_folder(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no index folder {folder}.")
        before = written_at(folder)
        try:
            index = cls.open_complete(folder)
        except (IndexFolderError, OSError):
            if written_at(folder) == before:
                raise
            return cls.open(folder)  # another index has taken its place meanwhile
        return index if written_at(folder) == before else cls.open(folder)

    @classmethod
    def open_complete(cls, folder: Path) -> "IndexFolder":
        index = cls(folder, read_description(folder))
        number = sum(path.is_dir() for path in folder.glob("shard-*"))
        if number > index.num_shards:
            raise IndexFolderError(
                f"{folder} is damaged: it has {number} parts, and {DESCRIPTION} says {index.num_shards}; index the "
                "images again, in a new folder."
            )
        if number < index.num_shards or index.missing_shards():
            raise IndexFolderError(
                f"{folder} is not complete: {max(index.num_shards - number, 1)} of its {index.num_shards} parts are "
                "missing; run the same hf-ngsan index again, which continues it."
            )
        return index

    @property
    def is_current(self) -> bool:
        """Whether no other index has taken its place since it was opened, as when it has grown."""
        return written_at(self.folder) == self.written_at

    def current(self) -> "IndexFolder":
        """Returns this index, or the one that has taken its place."""
        return self if self.is_current else IndexFolder.open(self.folder)

    @property
    def num_shards(self) -> int:
        return -(-self.description.num_items // self.description.items_per_shard)

    def shard_folder(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}"

    def shard_items(self, number: int) -> range:
        """Returns the numbers of the items of a shard."""
        size = self.description.items_per_shard
        return range(number * size, min((number + 1) * size, self.description.num_items))

    def written_shards(self) -> list[int]:
        """Returns the numbers of the written shards."""
        return [number for number in range(self.num_shards) if self.shard_folder(number).is_dir()]

    def missing_shards(self) -> list[int]:
        """Returns the numbers of the missing shards."""
        return [number for number in range(self.num_shards) if not self.shard_folder(number).is_dir()]

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
        """Adds a shard, whole or not at all.

        Args:
            number: number of the shard.
            names: names of its items.
            embeddings: `(items, dimension)`, stored as float16.
            skipped: name and reason of each item without an embedding.
            thumbnails: JPEG images of the items; empty if they are no images.
            stamps: stamps of the items' files, by item number.
            captions: captions of the items, if known.
            columns: scalar columns of the items, such as their width, by which Milvus can filter.
        """
        expected = (len(names), self.description.dimension)
        if embeddings.shape != expected:
            raise ValueError(f"embeddings has shape {embeddings.shape}; with these names it must be {expected}.")

        def write(folder: Path) -> None:
            np.save(folder / EMBEDDINGS, embeddings.astype(np.float16))
            content = {
                "shard": number,
                "index": self.description.checksum,
                "names": list(names),
                "skipped": [list(entry) for entry in skipped],
                "stamps": stamps or {},
                **({} if captions is None else {"captions": [list(of_item) for of_item in captions]}),
                **({} if columns is None else {"columns": [dict(of_item) for of_item in columns]}),
            }
            (folder / ITEMS).write_text(json.dumps(content), encoding="utf-8")
            with zipfile.ZipFile(folder / THUMBNAILS, "w") as archive:
                for row, thumbnail in enumerate(thumbnails):
                    archive.writestr(zipfile.ZipInfo(thumbnail_name(row)), thumbnail)

        write_folder_atomically(self.shard_folder(number), write)
        self.opened.pop(number, None)

    def shard(self, number: int) -> Shard:
        """Returns a shard, opened once; raises an IndexFolderError for a damaged one."""
        if number not in self.opened:
            folder, own = self.shard_folder(number), self.shard_items(number)
            self.opened[number] = Shard(folder, number, own, self.description)
        return self.opened[number]

    def items(self) -> tuple[list[str], list[list[str]]]:
        """Returns the names of all items with an embedding, and name and reason of each without."""
        of_shards = [self.shard(number).items for number in range(self.num_shards)]
        return [name for one in of_shards for name in one.names], [entry for one in of_shards for entry in one.skipped]

    def stamps(self) -> dict[int, FileStamp]:
        """Returns the stamps of the items of written shards, by item number."""
        written = [self.shard(number).read_items().stamps_by_number for number in self.written_shards()]
        return {number: stamp for numbers in written for number, stamp in numbers.items()}

    def embeddings(self) -> list[np.ndarray]:
        """Returns the embeddings of each shard, float16 `(items, dimension)`, memory-mapped and checked."""
        return [self.shard(number).embeddings for number in range(self.num_shards)]

    def embeddings_at(self, places: np.ndarray) -> np.ndarray:
        """Returns the embeddings at some places, float32 `(places, dimension)`, without reading others."""
        found = np.empty((len(places), self.description.dimension), np.float32)
        for number, (shard, row) in enumerate(self.at(places)):
            found[number] = shard.mapped[row]
            if not np.isfinite(found[number]).all():
                raise damaged(shard.folder / EMBEDDINGS, "numbers are not finite")
        return found

    def best(self, places: np.ndarray, query: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the largest exact inner products among some places, the largest first, and their places."""
        scores = (self.embeddings_at(places).astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
        order = np.lexsort((places, -scores))[:top_k]
        return scores[order], places[order]

    def names_at(self, places: np.ndarray) -> list[str]:
        """Returns the names of the items at some places."""
        return [shard.items.names[row] for shard, row in self.at(places)]

    def captions_at(self, places: np.ndarray) -> list[tuple[str, ...]]:
        """Returns the captions of the items at some places; empty if unknown."""
        return [tuple(shard.items.captions[row]) if shard.items.captions else () for shard, row in self.at(places)]

    def columns_at(self, places: np.ndarray) -> list[dict[str, Any]]:
        """Returns the scalar columns of the items at some places; empty if unknown."""
        return [shard.items.columns[row] if shard.items.columns else {} for shard, row in self.at(places)]

    def thumbnail_at(self, place: int) -> bytes | None:
        """Returns the thumbnail of the item at a place as JPEG; None without one.

        Raises:
            IndexFolderError: the thumbnail is damaged.
        """
        return self.thumbnails_at(np.array([place]))[0]

    def thumbnails_at(self, places: np.ndarray) -> list[bytes | None]:
        """Returns the thumbnails of the items at some places, each file of thumbnails opened once."""
        found: dict[int, bytes | None] = {}
        of_shards: dict[int, list[tuple[int, int]]] = {}
        for order, (shard, row) in enumerate(self.at(places)):
            of_shards.setdefault(shard.number, []).append((order, row))
        for number, rows in of_shards.items():
            with self.shard(number).thumbnails() as archive:
                has_any = bool(archive.namelist())
                found |= {order: read_thumbnail(archive, row) if has_any else None for order, row in rows}
        return [found[order] for order in range(len(places))]

    def at(self, places: np.ndarray) -> list[tuple[Shard, int]]:
        """Returns the shard and the row in it of each place."""
        numbers, rows = np.divmod(places, self.description.items_per_shard)
        return [(self.shard(number), row) for number, row in zip(numbers.tolist(), rows.tolist(), strict=True)]

    def all_places(self) -> np.ndarray:
        """Returns the places of all embeddings, int64 `(items,)`."""
        return np.concatenate([self.places(number) for number in range(self.num_shards)])

    def places(self, number: int) -> np.ndarray:
        """Returns the places of a shard's embeddings, int64 `(items,)`."""
        return number * self.description.items_per_shard + np.arange(len(self.shard(number).mapped))

    def backend_folder(self, name: str, files: Collection[str], what: str, read: Collection[str] | None = None) -> Path:
        """Returns the folder of a search backend in this index, after a check of its files.

        Args:
            name: name of the folder.
            files: names of its files.
            what: its content, for messages.
            read: files to compare by checksum, and not only by size; all if None.

        Raises:
            IndexFolderError: the folder is missing or damaged.
        """
        folder = find_folder(self.folder / name)
        if not folder.is_dir():
            raise IndexFolderError(f"{self.folder} has no {what} ({name} is missing); {MAKE}.")
        try:
            check_folder(folder, files, read)
        except DamagedFolderError as error:
            raise IndexFolderError(f"{str(error).rstrip('.')}; {MAKE} anew.") from None
        return folder

    def checksum(self) -> str:
        """Returns a checksum of the embeddings and their places."""
        digest = hashlib.sha256(self.description.fingerprint.encode())
        for number in range(self.num_shards):
            digest.update((self.shard_folder(number) / MANIFEST).read_bytes())
        return digest.hexdigest()

    @property
    def backend(self) -> str:
        """The search backend of this index, a spec for [`~hf_ngsan.retrieval.open_backend`]."""
        if not os.path.lexists(self.folder / BACKEND):
            return EXACT
        found = read_json_or_none(self.folder / BACKEND)
        if not isinstance(found, str):
            raise IndexFolderError(
                f"{self.folder} is damaged: {BACKEND} is not what was written; run the same hf-ngsan index again, with "
                "--backend."
            )
        return found

    @backend.setter
    def backend(self, spec: str) -> None:
        write_text_atomically(self.folder / BACKEND, json.dumps(spec) + "\n")


def written_at(folder: Path) -> tuple[int, int] | None:
    """Returns an identity of a folder's index, which changes when another one takes its place; None if it has none."""
    try:
        status = (folder / DESCRIPTION).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def is_index(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file()


def check_new_index(folder: Path) -> None:
    """Raises an IndexFolderError unless a folder is new or already an index."""
    if not is_index(folder) and not is_empty(folder):
        raise IndexFolderError(f"{folder} holds something else than an index; name a new folder.")


def read_description(folder: Path) -> IndexDescription:
    """Returns the description of an index; raises an IndexFolderError for a missing or damaged one."""
    if not is_index(folder):
        raise IndexFolderError(f"{folder} is no index ({DESCRIPTION} is missing); make one with hf-ngsan index.")
    try:
        description = read_fields(IndexDescription, read_json_or_none(folder / DESCRIPTION))
        sizes = description.dimension, description.num_items, description.items_per_shard
        if min(sizes) < 1 or description.num_items > MAX_SHARDS * description.items_per_shard:
            raise FieldError(f"the sizes {sizes}")
    except FieldError as error:
        raise IndexFolderError(
            f"{folder} is damaged: {error or 'all'} of {DESCRIPTION} cannot be; index the images again."
        ) from None
    if description.version != VERSION:
        raise IndexFolderError(f"{folder} is an index of version {description.version}; index the images again.")
    return description


def read_thumbnail(archive: zipfile.ZipFile, row: int) -> bytes:
    """Returns the thumbnail of a row; raises a ValueError or BadZipFile if it cannot be decoded."""
    from PIL import Image

    name = thumbnail_name(row)
    if archive.getinfo(name).file_size > MAX_THUMBNAIL_BYTES:
        raise ValueError(f"{name} has more than {MAX_THUMBNAIL_BYTES} bytes")
    content = archive.read(name)
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            is_small = max(image.size) <= MAX_THUMBNAIL_SIDE
            if is_small:
                image.load()
    except Exception:  # Pillow raises errors of many types for damaged files
        raise ValueError(f"{name} cannot be decoded as a JPEG image") from None
    if not is_small:
        raise ValueError(f"{name} is {image.width} x {image.height} pixels large")
    return content


def thumbnail_name(row: int) -> str:
    return f"{row:06d}.jpg"
