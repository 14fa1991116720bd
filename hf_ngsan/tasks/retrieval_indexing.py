"""Indexes of images: written in shards, continued after a kill, and brought up to date."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..extraction.image_list import SKIP_ERRORS, ExtractionError, ImageList, ListedImage, load_batches
from ..io import folders
from ..io.files import TEMPORARY_PREFIX, FileStamp, temporary_path
from ..io.folders import FolderLock
from ..io.processes import default_images_per_shard, extraction_accelerator, on_main_process
from ..retrieval import IndexFolder, IndexFolderError, check_backend, open_backend
from ..retrieval.index_folder import DESCRIPTION, IndexDescription, check_new_index, read_description

MAX_IMAGES_PER_SHARD = 1000  # a killed process may have to embed these again
THUMBNAIL_SIDE = 160  # longer side in pixels


class IndexEncoder(NamedTuple):
    """The part of a dual encoder, or of its graphs, that an index needs."""

    image_processor: Any  # None without a vision encoder
    dimension: int  # of an embedding
    fingerprint: str
    embed: Callable[[Mapping[str, Any]], np.ndarray]  # from inputs of images to float32 `(images, dimension)`


def write_index(
    encoder: IndexEncoder,
    images: ImageList,
    folder: str | Path,
    *,
    name: str,
    split: str | None = None,
    batch_size: int = 32,
    num_workers: int | None = None,
    images_per_shard: int | None = None,
    skip_errors: bool = False,
    backend: str | None = None,
    prune: bool = False,
    accelerator: Any = None,
) -> IndexFolder:
    """Embeds images into an index, resumes an incomplete index, or updates an existing one.

    An update adds new images, and new embeddings of files that have changed or could not be read before. Deleted images
    stay unless `prune` is set; those no longer listed follow the others. The folder is replaced in one step. Several
    processes write different shards, and the result is the same as that of one process. Images that cannot be read are
    an error, or are left out and recorded.

    Args:
        encoder: encoder of the images.
        images: images of [`~hf_ngsan.extraction.list_images`], of a split if they come from a dataset.
        name: folder or Hub name of the model; searches load it.
        num_workers, images_per_shard: as for [`~hf_ngsan.extraction.extract_features`].
        backend: the search backend, as for [`~hf_ngsan.retrieval.open_backend`]; by default that of the index.
        prune: whether to remove images that are no longer listed or whose files were deleted.
        accelerator: Accelerator of the processes that share the work, or [`~hf_ngsan.io.processes.OneProcess`].

    Raises:
        IndexFolderError, ExtractionError: the folder or the model cannot be used, or an image cannot be read.
    """
    accelerator = accelerator or extraction_accelerator()
    place = Path(os.path.realpath(folder))  # new folders are written next to the target of a link
    lock = FolderLock(place, ExtractionError(f"Another indexing is writing {place}; wait for its end."))
    settings = (split, batch_size, images_per_shard, skip_errors, prune, num_workers, accelerator)
    work = Indexing(lock, encoder, name, images, *settings)
    try:
        index, missing, earlier = on_main_process(accelerator, lambda: work.begin(backend))
        work.write_shards(index, missing, earlier)
        accelerator.wait_for_everyone()
        return on_main_process(accelerator, lambda: work.publish(index, earlier, backend))
    finally:
        lock.release()


class Row(NamedTuple):
    """An item of an index; its columns are width and height."""

    embedding: np.ndarray
    thumbnail: bytes | None
    stamp: FileStamp | None
    columns: dict[str, Any]


@dataclass(frozen=True)
class EarlierEmbeddings:
    """Embeddings of listed images that an existing index, complete or not, already has."""

    index: IndexFolder
    images: ImageList  # the listed images, followed by others of the index that stay
    places: dict[int, int]  # position of the embedding in the index by image number, for unchanged files
    stamps: dict[int, FileStamp]  # stamp of the file when it was embedded, by image number
    is_changed: bool  # whether a listed image of the index has changed or become readable

    def rows(self, items: Iterable[int]) -> dict[int, Row]:
        """Returns the items that are in the index, by number."""
        known = [item for item in items if item in self.places]
        places = np.array([self.places[item] for item in known], dtype=np.int64)
        columns = [item_columns for *_, item_columns in self.index.items_at(places)]
        stored_fields = self.index.embeddings_at(places), self.index.thumbnails_at(places), columns
        return {
            item: Row(embedding, thumbnail, self.stamps.get(item), columns)
            for item, embedding, thumbnail, columns in zip(known, *stored_fields, strict=True)
        }


def earlier_embeddings(
    folder: Path, images: ImageList, source: str, fingerprint: str, prune: bool
) -> EarlierEmbeddings | None:
    """Returns the embeddings of images in a folder; `None` if it is new or its index has another model."""
    if not (folder / DESCRIPTION).is_file():
        return None
    index = IndexFolder(folder, read_description(folder))
    if index.description.fingerprint != fingerprint:
        return None
    items = {key: item for item, key in enumerate(occurrences(image.file_name for image in images.images))}
    rows: list[tuple[int, str, FileStamp | None, list[str]]] = []
    skipped: set[str] = set()
    for number in index.written_shards():
        shard = index.shard(number).read_items()
        times: list[FileStamp | None] = [stamp for _, stamp in sorted(shard.stamps.items())]
        times = times if len(times) == len(shard.names) else [None] * len(shard.names)
        texts = shard.captions or [[]] * len(shard.names)
        rows += zip(index.places(number).tolist(), shard.names, times, texts, strict=True)
        skipped |= {name for name, _ in shard.skipped}
    places, stamps, gone, is_changed = {}, {}, [], False
    for key, (place, name, stamp, captions) in zip(occurrences(row[1] for row in rows), rows, strict=True):
        item = items.get(key)
        if item is None:
            gone.append((place, stamp, ListedImage(-1, name, tuple(captions))))
        elif stamp is None or not images.is_unchanged(item, stamp) or (prune and not images.is_there(item)):
            is_changed = True
        else:
            places[item], stamps[item] = place, stamp
    if rows and not places and index.description.source != source:
        raise IndexFolderError(f"{folder} is an index of other images ({index.description.source}); give a new folder.")
    unread = [items[name, 0] for name in skipped if (name, 0) in items and items[name, 0] not in places]
    is_changed = is_changed or any(is_readable(images, item) for item in unread)
    kept = [] if prune else gone
    for item, (place, stamp, _) in enumerate(kept, len(images)):
        places[item] = place
        if stamp is not None:
            stamps[item] = stamp
    listed = replace(
        images,
        images=(*images.images, *(image for _, _, image in kept)),
        has_captions=images.has_captions or any(image.captions for _, _, image in kept),
    )
    index.opened.clear()  # other processes open the shards themselves
    return EarlierEmbeddings(index, listed, places, stamps, is_changed)


def skipped_images(index: IndexFolder) -> list[tuple[str, str]]:
    """Returns names of unreadable images in the written shards of an index, and the reasons."""
    return [(name, reason) for number in index.written_shards() for name, reason in index.shard(number).items.skipped]


def occurrences(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields each name with the number of equal names before it, because images may share a name."""
    seen: Counter[str] = Counter()
    for name in names:
        yield name, seen[name]
        seen[name] += 1


def is_readable(images: ImageList, item: int) -> bool:
    try:
        images.read(item)
    except Exception:  # libraries raise many exceptions for unreadable images
        return False
    return True


@dataclass(frozen=True)
class Indexing:
    """State of a call of [`index_images`]: the lock of the folder, and the handling of images and folder."""

    lock: FolderLock
    encoder: IndexEncoder
    name: str  # of the model
    images: ImageList
    split: str | None
    batch_size: int
    images_per_shard: int | None
    skip_errors: bool
    prune: bool
    num_workers: int | None
    accelerator: Any

    @property
    def growing(self) -> Path:
        """Folder of a new index that will replace an existing one."""
        return self.lock.folder.with_name(f"{TEMPORARY_PREFIX}{self.lock.folder.name}.growing")

    def begin(self, backend: str | None) -> tuple[IndexFolder, list[int], EarlierEmbeddings | None]:
        """Locks the folder; returns the index to write, its missing shards, and the embeddings that it replaces."""
        if backend is not None:
            check_backend(backend)
        if self.encoder.image_processor is None:
            raise ExtractionError(f"{self.name} has no vision encoder and cannot embed images.")
        folder, images = self.lock.folder, self.images
        check_new_index(folder)
        if not folder.exists():
            folders.restore(folder)  # before the lock creates a folder of this name
        self.lock.acquire()
        folders.restore(folder)  # removes the old folder that a killed command had replaced
        folders.remove(temporary_path(folder))
        source = images.source if self.split is None else f"{images.source}, split {self.split}"
        earlier = earlier_embeddings(folder, images, source, self.encoder.fingerprint, self.prune)
        listed = images if earlier is None else earlier.images
        default = default_images_per_shard(len(listed), self.batch_size, MAX_IMAGES_PER_SHARD)
        description = IndexDescription(
            model=self.name,
            fingerprint=self.encoder.fingerprint,
            source=source,
            source_checksum=listed.checksum(self.split),
            dimension=self.encoder.dimension,
            num_items=len(listed),
            items_per_shard=self.images_per_shard or default,
        )
        if earlier is not None and (
            earlier.is_changed or earlier.index.description.source_checksum != description.source_checksum
        ):
            index = self.begin_replacement(description)
            return index, index.missing_shards(), earlier
        folders.remove(self.growing)
        index = IndexFolder.begin(folder, description, besides=[self.lock.name])
        if not self.skip_errors and (skipped := skipped_images(index)):  # by an earlier run
            raise ExtractionError(f"{skipped[0][1]} {SKIP_ERRORS}")
        return index, index.missing_shards(), None

    def begin_replacement(self, description: IndexDescription) -> IndexFolder:
        """Starts an index next to an existing one, or resumes it if it was started with the same unchanged images."""
        with suppress(IndexFolderError):  # an index of other images, or a damaged one
            index, images = IndexFolder.begin(self.growing, description), self.images
            stamps = index.stamps().items()
            is_unchanged = all(images.is_unchanged(item, stamp) for item, stamp in stamps if item < len(images))
            if is_unchanged and (self.skip_errors or not skipped_images(index)):  # skipped images are read again
                return index
        folders.remove(self.growing)
        return IndexFolder.begin(self.growing, description)

    def publish(self, index: IndexFolder, earlier: EarlierEmbeddings | None, backend: str | None) -> IndexFolder:
        """Makes a complete index searchable, and replaces the existing index with it."""
        folder, lock = self.lock.folder, self.lock.name
        chosen = backend or (index if earlier is None else earlier.index).backend
        open_backend(index, chosen).add(None if earlier is None else earlier.index)
        if chosen != index.backend:
            index.backend = chosen

        def take_over(new: Path) -> None:
            for path in self.growing.iterdir():
                path.rename(new / path.name)
            with suppress(OSError):  # some file systems have no hard links
                os.link(folder / lock, new / lock)  # the new folder must be locked, too

        if earlier is not None:
            folders.write_folder_atomically(folder, take_over, manifest=False)
            folders.remove(self.growing)
        current = index if earlier is None else IndexFolder.open(folder)
        open_backend(current, chosen).drop_earlier()
        return current

    def write_shards(self, index: IndexFolder, missing: Sequence[int], earlier: EarlierEmbeddings | None) -> None:
        """Embeds this process's share of missing shards, with the same batch boundaries in every run."""
        known = {} if earlier is None else earlier.places
        images = self.images if earlier is None else earlier.images
        encoder, accelerator = self.encoder, self.accelerator
        batches: dict[int, list[list[int]]] = {}
        for number in missing[accelerator.process_index :: accelerator.num_processes]:
            items = [item for item in index.shard_items(number) if item not in known]
            batches[number] = [
                items[start : start + self.batch_size] for start in range(0, len(items), self.batch_size)
            ]
        in_order = [batch for shard_batches in batches.values() for batch in shard_batches]
        workers = (self.num_workers, accelerator, "indexing")
        prepared = load_batches(images, in_order, encoder.image_processor, *workers, thumbnail_side=THUMBNAIL_SIDE)
        for number, shard_batches in batches.items():
            skipped: list[tuple[str, str]] = []
            rows: dict[int, Row] = {} if earlier is None else earlier.rows(index.shard_items(number))
            for batch in islice(prepared, len(shard_batches)):
                if batch.unreadable and not self.skip_errors:
                    raise ExtractionError(f"{batch.unreadable[0][1]} {SKIP_ERRORS}")
                skipped += [(images.images[item].file_name, reason) for item, reason in batch.unreadable]
                if not batch.positions:
                    continue
                embeddings = encoder.embed(batch.inputs)
                if not np.isfinite(embeddings).all():
                    name = images.images[batch.positions[-1]].file_name
                    raise ExtractionError(f"{name}: the model's embeddings are not finite; check its weights.")
                batch_fields = batch.positions, embeddings, batch.thumbnails, batch.sizes
                for item, embedding, thumbnail, (width, height) in zip(*batch_fields, strict=True):
                    rows[item] = Row(embedding, thumbnail, batch.stamps.get(item), {"width": width, "height": height})
            rows = dict(sorted(rows.items()))
            listed = [images.images[item] for item in rows]
            index.write_shard(
                number,
                [image.file_name for image in listed],
                np.stack([row.embedding for row in rows.values()]) if rows else np.zeros((0, encoder.dimension)),
                skipped,
                [row.thumbnail for row in rows.values() if row.thumbnail is not None],
                {item: row.stamp for item, row in rows.items() if row.stamp is not None},
                [image.captions or () for image in listed] if images.has_captions else None,
                [row.columns for row in rows.values()],
            )
