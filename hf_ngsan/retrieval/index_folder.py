"""A folder of embeddings and of what they are of: shards, each whole or absent, and a description."""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..ground.files import FileStamp, write_text_atomically
from ..store.folders import (
    MANIFEST,
    DamagedFolderError,
    check_folder,
    is_empty,
    remove_leftovers,
    write_folder_atomically,
)

DESCRIPTION = "index.json"
EMBEDDINGS, ITEMS, THUMBNAILS = "embeddings.npy", "items.json", "thumbnails.zip"
BACKEND, EXACT = "backend.json", "exact"
REMAKE = "delete this folder and run the same hf-ngsan index again"
VERSION = 3
LARGEST_THUMBNAIL = 2**20
"""In bytes."""
LONGEST_SIDE = 1024
"""Of a thumbnail, in pixels; what is larger was not written as one."""
MOST_SHARDS = 10**6
"""As many as the names of their folders have numbers for."""


class IndexFolderError(ValueError):
    """A folder that holds no such index; the message names it and says what to do."""


@dataclass(frozen=True)
class IndexDescription:
    """What an index holds.

    Attributes:
        model: folder or Hub name of the model that made the embeddings.
        fingerprint: tells that model and its preprocessing from any other.
        source: where the items come from, for people.
        source_checksum: tells the items and their order from any others.
        dimension: of an embedding.
        num_items: how many there are, those that cannot be read included.
        items_per_shard: how many belong to each shard, but for the last.
        version: of this format.
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
        """What tells the index that a shard is of from others."""
        parts = (self.fingerprint, self.source_checksum, self.dimension, self.num_items, self.items_per_shard)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class IndexFolder:
    """Embeddings in float16, memory-mapped for search.

    The place of an embedding is the number of its shard times `items_per_shard`, plus its row there.

    Args:
        folder: where they are.
        description: what they are of.
    """

    def __init__(self, folder: Path, description: IndexDescription) -> None:
        self.folder, self.description = folder, description
        self.read: dict[int, tuple[dict[str, Any], np.ndarray]] = {}

    @classmethod
    def begin(cls, folder: Path, description: IndexDescription, besides: Collection[str] = ()) -> "IndexFolder":
        """Makes a new index, or continues one with the same description.

        Args:
            folder: of the index.
            description: what it shall hold.
            besides: files there that are the caller's.

        Raises:
            IndexFolderError: the folder holds something else, or an index of another model or other items.
        """
        if (folder / DESCRIPTION).is_file():
            found = read_description(folder)
            if found.fingerprint != description.fingerprint:
                raise IndexFolderError(f"{folder} is an index of another model, {found.model}; name a new folder.")
            same = (found.source_checksum, found.num_items, found.dimension)
            if same != (description.source_checksum, description.num_items, description.dimension):
                raise IndexFolderError(
                    f"{folder} is an index of other images ({found.num_items} of {found.source}); name a new folder."
                )
            remove_leftovers(folder, besides)
            return cls(folder, found)
        check_new_index(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / DESCRIPTION, json.dumps(asdict(description), indent=1) + "\n")
        return cls(folder, description)

    @classmethod
    def open(cls, folder: Path) -> "IndexFolder":
        """Opens a complete index.

        Raises:
            FileNotFoundError: there is no such folder.
            IndexFolderError: it holds no index, or one that is damaged or not complete.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no index folder {folder}.")
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
    def num_shards(self) -> int:
        return -(-self.description.num_items // self.description.items_per_shard)

    def shard_folder(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}"

    def shard_items(self, number: int) -> range:
        """Returns the numbers of the items that belong to a shard."""
        size = self.description.items_per_shard
        return range(number * size, min((number + 1) * size, self.description.num_items))

    def missing_shards(self) -> list[int]:
        """Returns the numbers of the shards that have not been written."""
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
    ) -> None:
        """Adds a shard, whole or not at all.

        Args:
            number: of the shard.
            names: of its items.
            embeddings: `(items, dimension)`, stored as float16.
            skipped: name and reason of each item that has no embedding.
            thumbnails: JPEG images of the items; none where they are no images.
            stamps: what tells items from others of their names, by their numbers.
            captions: of the items, where they are known.
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
            }
            (folder / ITEMS).write_text(json.dumps(content), encoding="utf-8")
            with zipfile.ZipFile(folder / THUMBNAILS, "w") as archive:
                for row, thumbnail in enumerate(thumbnails):
                    archive.writestr(zipfile.ZipInfo(thumbnail_name(row)), thumbnail)

        write_folder_atomically(self.shard_folder(number), write)

    def items(self) -> tuple[list[str], list[list[str]]]:
        """Returns the names of all items with an embedding, and name and reason of each without."""
        names, skipped = [], []
        for number in range(self.num_shards):
            content, _ = self.read_shard(number)
            names += content["names"]
            skipped += content["skipped"]
        return names, skipped

    def stamps(self) -> dict[int, FileStamp]:
        """Returns the stamps of items whose shards have been written, by their numbers."""
        written = set(range(self.num_shards)).difference(self.missing_shards())
        contents = (self.read_shard(number)[0] for number in sorted(written))
        return {int(item): FileStamp(*stamp) for content in contents for item, stamp in content["stamps"].items()}

    def read_shard(self, number: int) -> tuple[dict[str, Any], np.ndarray]:
        """Returns the items of a shard, and its embeddings, float16 `(items, dimension)`, memory-mapped.

        The former are the `names` of the embedded, the `skipped` ones, `stamps` by number of the item and, where they
        are known, `captions` of the embedded.

        Raises:
            IndexFolderError: the shard is not what was written, which is looked at once.
        """
        if number not in self.read:
            folder = self.shard_folder(number)
            try:
                check_folder(folder, (EMBEDDINGS, ITEMS, THUMBNAILS))
            except DamagedFolderError as error:
                raise IndexFolderError(f"{str(error).rstrip('.')}; {REMAKE}.") from None
            items, embeddings = read_items(folder / ITEMS), read_embeddings(folder / EMBEDDINGS)
            own, written = self.shard_items(number), (number, self.description.checksum)
            if (items.get("shard", number), items.get("index", written[1])) != written:
                raise IndexFolderError(f"{folder} is the shard of another place or of another index; {REMAKE}.")
            if not all(int(item) in own for item in items["stamps"]):  # all that earlier versions tell shards by
                raise IndexFolderError(f"{folder} is the shard of another place; {REMAKE}.")
            if embeddings.shape != (len(items["names"]), self.description.dimension):
                raise IndexFolderError(
                    f"{folder} is damaged: its embeddings have the shape {embeddings.shape}, for {len(items['names'])}"
                    f" names and dimension {self.description.dimension}; index the images again, in a new folder."
                )
            if len(items["names"]) + len(items["skipped"]) != len(own):
                raise IndexFolderError(
                    f"{self.folder} is damaged: {folder.name} does not hold what {DESCRIPTION} says; index the images "
                    "again, in a new folder."
                )
            with self.thumbnails(number, len(items["names"])):
                self.read[number] = items, embeddings
        return self.read[number]

    def embeddings(self) -> list[np.ndarray]:
        """Returns the embeddings of each shard, float16 `(items, dimension)`, memory-mapped."""
        return [self.read_shard(number)[1] for number in range(self.num_shards)]

    def embeddings_at(self, places: np.ndarray) -> np.ndarray:
        """Returns the embeddings at some places, float32 `(places, dimension)`."""
        found = np.empty((len(places), self.description.dimension), np.float32)
        for row, (shard, place) in enumerate(zip(*self.split(places), strict=True)):
            found[row] = self.read_shard(shard)[1][place]
        return found

    def names_at(self, places: np.ndarray) -> list[str]:
        """Returns the names of the items at some places."""
        return [self.read_shard(shard)[0]["names"][row] for shard, row in zip(*self.split(places), strict=True)]

    def captions_at(self, places: np.ndarray) -> list[tuple[str, ...]]:
        """Returns the captions of the items at some places; none where they are not known."""
        found = []
        for shard, row in zip(*self.split(places), strict=True):
            captions = self.read_shard(shard)[0].get("captions")
            found.append(() if captions is None else tuple(captions[row]))
        return found

    def thumbnail_at(self, place: int) -> bytes | None:
        """Returns the JPEG image of the item at a place; None if it has none.

        Raises:
            IndexFolderError: it is damaged.
        """
        [shard], [row] = self.split(np.array([place]))
        with self.thumbnails(shard, len(self.read_shard(shard)[1])) as archive:
            return read_thumbnail(archive, row) if archive.namelist() else None

    def check_thumbnails(self, number: int) -> None:
        """Raises an IndexFolderError for a shard of which a thumbnail is damaged."""
        with self.thumbnails(number, len(self.read_shard(number)[1])) as archive:
            for row in range(len(archive.namelist())):
                read_thumbnail(archive, row)

    @contextmanager
    def thumbnails(self, number: int, num_items: int) -> Iterator[zipfile.ZipFile]:
        """Opens the thumbnails of a shard, none or one of each item."""
        file = self.shard_folder(number) / THUMBNAILS
        try:
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
                if names and names != [thumbnail_name(row) for row in range(num_items)]:
                    raise ValueError(f"it has {len(names)} images for {num_items} items")
                yield archive
        except (zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError, OverflowError, zlib.error) as error:
            raise IndexFolderError(f"{file} is damaged ({error}); {REMAKE}.") from None

    def all_places(self) -> np.ndarray:
        """Returns the places of all embeddings, int64 `(items,)`."""
        return np.concatenate([self.places(number) for number in range(self.num_shards)])

    def places(self, number: int) -> np.ndarray:
        """Returns the places of a shard's embeddings, int64 `(items,)`."""
        return number * self.description.items_per_shard + np.arange(len(self.read_shard(number)[1]))

    def split(self, places: np.ndarray) -> tuple[list[int], list[int]]:
        """Returns the shards of places, and the rows there."""
        shards, rows = np.divmod(places, self.description.items_per_shard)
        return shards.tolist(), rows.tolist()

    def checksum(self) -> str:
        """Returns what tells the embeddings and their places from any others."""
        digest = hashlib.sha256(self.description.fingerprint.encode())
        for number in range(self.num_shards):
            digest.update((self.shard_folder(number) / MANIFEST).read_bytes())
        return digest.hexdigest()

    @property
    def backend(self) -> str:
        """What searches this index, as [`~hf_ngsan.retrieval.open_backend`] takes it."""
        if not os.path.lexists(self.folder / BACKEND):
            return EXACT
        found = read_json(self.folder / BACKEND)
        if not isinstance(found, str):
            raise IndexFolderError(
                f"{self.folder} is damaged: {BACKEND} is not what was written; run the same hf-ngsan index again, with "
                "--to."
            )
        return found

    @backend.setter
    def backend(self, spec: str) -> None:
        write_text_atomically(self.folder / BACKEND, json.dumps(spec) + "\n")


def check_new_index(folder: Path) -> None:
    """Raises an IndexFolderError unless a folder can become an index or is one already."""
    is_index = (folder / DESCRIPTION).is_file()
    if not is_index and (folder.is_file() or (folder.is_dir() and not is_empty(folder))):
        raise IndexFolderError(f"{folder} holds something else than an index; name a new folder.")


def read_description(folder: Path) -> IndexDescription:
    """Returns the description of an index; raises an IndexFolderError if there is none that can be read."""
    if not (folder / DESCRIPTION).is_file():
        raise IndexFolderError(f"{folder} is no index ({DESCRIPTION} is missing); make one with hf-ngsan index.")
    content = read_json(folder / DESCRIPTION)
    kinds = {entry.name: entry.type for entry in fields(IndexDescription)}
    is_description = isinstance(content, dict) and content.keys() == kinds.keys()
    if not is_description or any(type(content[name]) is not kind for name, kind in kinds.items()):
        raise IndexFolderError(f"{folder} is damaged: {DESCRIPTION} is not what was written; index the images again.")
    description = IndexDescription(**content)
    if description.version != VERSION:
        raise IndexFolderError(f"{folder} is an index of version {description.version}; index the images again.")
    if min(description.dimension, description.num_items, description.items_per_shard) < 1:
        raise IndexFolderError(f"{folder} is damaged: {DESCRIPTION} has sizes below 1; index the images again.")
    if description.num_items > MOST_SHARDS * description.items_per_shard:
        raise IndexFolderError(f"{folder} is damaged: {DESCRIPTION} has too many items; index the images again.")
    return description


def read_items(file: Path) -> dict[str, Any]:
    """Returns what the items of a shard are; raises an IndexFolderError if it is not what was written."""
    items = read_json(file)
    try:
        names, skipped, stamps = (items[key] for key in ("names", "skipped", "stamps"))
        captions = items.get("captions", [[]] * len(names))
        for text in (*names, *(text for name, reason in skipped for text in (name, reason))):
            os.fsencode(text)
        for text in (text for of_item in captions for text in of_item):
            text.encode()
        lists = [names, skipped, *skipped, captions, *captions]
        is_whole = len(captions) == len(names) and all(type(one) is list for one in lists)
        kinds = {tuple(map(type, (int(item), *stamp))) for item, stamp in stamps.items()}
    except (TypeError, ValueError, LookupError, AttributeError):
        is_whole, kinds = False, set()
    if not is_whole or not kinds <= {(int, int, int, str)}:
        raise IndexFolderError(f"{file} is damaged: it is not what was written; {REMAKE}.")
    return items


def read_embeddings(file: Path) -> np.ndarray:
    """Returns embeddings, memory-mapped; raises an IndexFolderError if they are no finite numbers in float16."""
    try:
        embeddings = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:  # NumPy says in many ways that a file is damaged
        raise IndexFolderError(f"{file} is damaged ({' '.join(str(error).split())[:200]}); {REMAKE}.") from None
    if embeddings.dtype != np.float16 or embeddings.ndim != 2 or not np.isfinite(embeddings).all():
        raise IndexFolderError(f"{file} is damaged: it holds other numbers than embeddings; {REMAKE}.")
    return embeddings


def read_thumbnail(archive: zipfile.ZipFile, row: int) -> bytes:
    """Returns the thumbnail of a row, which can be decoded; raises a ValueError or BadZipFile if it cannot."""
    from PIL import Image

    name = thumbnail_name(row)
    if archive.getinfo(name).file_size > LARGEST_THUMBNAIL:
        raise ValueError(f"{name} has more than {LARGEST_THUMBNAIL} bytes")
    content = archive.read(name)
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            is_small = max(image.size) <= LONGEST_SIDE
            if is_small:
                image.load()
    except Exception:  # Pillow says in many ways that a file is damaged
        raise ValueError(f"{name} cannot be decoded as a JPEG image") from None
    if not is_small:
        raise ValueError(f"{name} is {image.width} x {image.height} pixels large")
    return content


def thumbnail_name(row: int) -> str:
    return f"{row:06d}.jpg"


def read_json(file: Path) -> Any:
    """Returns what a JSON file holds; None if it is no file or no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
