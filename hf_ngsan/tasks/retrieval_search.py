"""Image search with a dual encoder: indexes, queries, and reranking of captions by similarity to an image."""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from PIL import Image
from transformers import PreTrainedModel

from ..data.collator import visual_arguments
from ..extraction.extract import default_images_per_shard, extraction_accelerator, lock_of, on_main_process
from ..extraction.image_list import SKIP_ERRORS, ExtractionError, ImageList, ListedImage, load_batches
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..io import folders
from ..io.files import TEMPORARY_PREFIX, FileStamp, temporary_path
from ..io.folders import FolderLock
from ..loading.calibration import SearchCalibration
from ..loading.models import is_guest
from ..loading.provenance import model_fingerprint
from ..models.attention_maps import attention_maps
from ..models.image_processing_captioning import load_image
from ..retrieval import Hit, IndexFolder, IndexFolderError, check_backend, open_backend, search_current
from ..retrieval.index_folder import DESCRIPTION, IndexDescription, check_new_index, read_description
from ..training.batches import map_sharded, take
from ..visualization import Match, explain_match, plot_contact_sheet, plot_match, save_figure
from ..visualization.heads import explain_match_of_guest
from ..visualization.plots import FIGURE_SIDE

MAX_IMAGES_PER_SHARD = 1000  # a killed process may have to embed these again
THUMBNAIL_SIDE = 160  # longer side in pixels
COLLECTION = 16  # number of images in each search of the calibration
SIMILARITY_WEIGHT = 2.0  # chosen on the validation split of Flickr8k for `mhsan-flickr8k` (docs/results.md)


def embed_images(model: PreTrainedModel, processor: Any, rows: Sequence[dict]) -> np.ndarray:
    """Returns embeddings of rows with images or visual features, float32 `(rows, dimension)`."""
    encoder, given = dual_encoder_of(model, processor), visual_arguments(rows)
    if is_guest(model.config):
        return embed_pixels(encoder, encoder.image_inputs(given["images"]))
    return embed_pixels(encoder, processor(**given))


def embed_pixels(encoder: DualEncoder, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Returns embeddings of images from their model inputs, float32 `(images, dimension)`."""
    with torch.inference_mode():
        return encoder.embed_images(inputs).cpu().numpy()


def embed_texts(model: PreTrainedModel, processor: Any, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
    """Returns embeddings of texts, float32 `(texts, dimension)`; texts that are too long are truncated."""
    encoder, parts = dual_encoder_of(model, processor), []
    for start in range(0, len(texts), batch_size):
        with torch.inference_mode():
            parts.append(encoder.embed_texts(encoder.text_inputs(texts[start : start + batch_size])).cpu().numpy())
    return np.concatenate(parts)


def search_images(
    model: Any,
    processor: Any,
    index: IndexFolder | Sequence[IndexFolder],
    *,
    text: str | None = None,
    image: Any = None,
    top_k: int = 9,
    backend: str | None = None,
    filter: str = "",
) -> list[Hit]:
    """Returns the images of one or several indexes that are nearest to a text or to an image.

    Args:
        index: one or several indexes made with this model; several are searched as one.
        text, image: the query, one of the two; the image is a path, a URL or a PIL image.
        top_k: maximal number of images.
        backend: the search backend, as for [`~hf_ngsan.retrieval.open_backend`]; by default that of the index.
        filter: an expression of Milvus, such as `width > 500`, that images must match.

    Raises:
        ValueError, IndexFolderError: there is no valid query, or the index was made with another model.
    """
    indexes = [index] if isinstance(index, IndexFolder) else list(index)
    if (text is None) == (image is None):
        raise ValueError("Give either a text or an image as the query.")
    if text is None:
        encoder = dual_encoder_of(model, processor)
        query = embed_pixels(encoder, encoder.image_inputs([image]))
    else:
        check_query(processor, text)
        query = embed_texts(model, processor, [text])
    return search_current(indexes, model_fingerprint(model, processor), query, top_k, backend, filter)


def check_query(processor: Any, text: str) -> None:
    """Raises a ValueError for a query without a word of the model's vocabulary."""
    [ids] = processor(text=[text])["input_ids"]
    ids = ids.tolist() if torch.is_tensor(ids) else ids
    if set(ids) <= {processor.tokenizer.unk_token_id, *processor.tokenizer.all_special_ids}:
        raise ValueError(f"No word of {text!r:.80} is in the model's vocabulary; use other words.")


def calibrate_search(
    model: PreTrainedModel,
    processor: Any,
    rows: Sequence[Dataset],
    *,
    data: Sequence[str],
    split: str,
    batch_size: int = 64,
) -> SearchCalibration:
    """Finds the similarity below which no image is near enough to a text, from images and their captions.

    For each caption, a collection of 16 other images is drawn at random. At the threshold, both errors are equally
    frequent: the best image of the collection reaches it, or the image of the caption does not.
    """

    def embed(dataset: Dataset, indices: range) -> list[np.ndarray]:
        return list(embed_images(model, processor, take(dataset, indices)))

    found = [map_sharded(partial(embed, one), len(one), batch_size, description="embedding") for one in rows]
    images = np.array(list(chain.from_iterable(found)))
    if len(images) <= COLLECTION:
        raise ValueError(f"There are {len(images)} images; calibration needs more than {COLLECTION}.")
    captions = list(chain.from_iterable(dataset["captions"] for dataset in rows))
    own = np.repeat(np.arange(len(images)), list(map(len, captions)))
    similarities = embed_texts(model, processor, list(chain.from_iterable(captions))) @ images.T
    matching = similarities[np.arange(len(own)), own]
    random, best = np.random.default_rng(0), []
    for of_images, number in zip(similarities, own, strict=True):
        drawn = random.choice(len(images) - 1, COLLECTION, replace=False)
        best.append(of_images[drawn + (drawn >= number)].max())
    mistaken, missed = np.sort(best), np.sort(matching)
    candidates = np.sort(np.concatenate([mistaken, missed]))
    too_many = 1 - np.searchsorted(mistaken, candidates) / len(mistaken)
    too_few = np.searchsorted(missed, candidates) / len(missed)
    place = int(np.argmin(np.abs(too_many - too_few)))
    return SearchCalibration(
        min_similarity=float(candidates[place]),
        missed=float(too_few[place]),
        mistaken=float(too_many[place]),
        data=list(data),
        split=split,
        num_images=len(images),
    )


def draw_hits(index: IndexFolder | Sequence[IndexFolder], hits: Sequence[Hit], title: str, path: str | Path) -> None:
    """Draws the thumbnails of hits of [`search_images`], with scores and names, into a file."""
    indexes = [index] if isinstance(index, IndexFolder) else index
    for searched in indexes:
        if not searched.is_current:
            raise IndexFolderError(f"{searched.folder} has been replaced since it was searched; search it again.")
    stored = [indexes[hit.index_number].thumbnail_at(hit.place) for hit in hits]
    images = [None if thumbnail is None else Image.open(io.BytesIO(thumbnail)) for thumbnail in stored]
    labels = [f"{hit.score:.3f}  {Path(hit.name).name}" for hit in hits]
    save_figure(plot_contact_sheet(images, labels, title), path)


def explain_pair(model: Any, processor: Any, image: Any, text: str, figure: str | Path | None = None) -> Match:
    """Returns the share of each attention head of a dual encoder in the similarity of an image and a text.

    Args:
        image: any image that [`~hf_ngsan.models.image_processing_captioning.load_image`] reads.
        figure: file for a figure of the heads over image and words.
    """
    image = load_image(image)
    if is_guest(model.config):
        match = explain_match_of_guest(dual_encoder_of(model, processor), image, text)
    else:
        check_query(processor, text)
        match = explain_match(model, processor.tokenizer, processor(images=image, text=text).to(model.device))
    if figure is not None:
        image.thumbnail((FIGURE_SIDE, FIGURE_SIDE))
        maps = np.zeros((0, image.height, image.width))
        if len(match.image_weights) and match.boxes is not None:
            maps = attention_maps(match.image_weights, match.boxes, *image.size)
        save_figure(plot_match(image, maps, match), figure)
    return match


class Reranker:
    """Orders the captions of an image, such as the beams of a captioner, with a dual encoder.

    The score of a caption is its mean log-probability plus `weight` times its cosine similarity to the image.
    """

    def __init__(self, model: Any, processor: Any, weight: float = SIMILARITY_WEIGHT) -> None:
        self.model, self.processor, self.weight = model, processor, weight
        self.encoder = dual_encoder_of(model, processor)

    def order(self, image: Any, captions: Sequence[str], scores: Sequence[float]) -> list[int]:
        """Returns the indices of captions with mean log-probabilities, the best first; ties keep their order."""
        totals = np.asarray(scores) + self.weight * self.similarities(image, captions)
        return np.argsort(-totals, kind="stable").tolist()

    def similarities(self, image: Any, captions: Sequence[str]) -> np.ndarray:
        """Returns the cosine similarity of each caption to the image."""
        row = dict(image) if isinstance(image, Mapping) else {"image": image}
        if self.encoder.image_processor is not None and row.get("image") is not None:
            embedding = embed_pixels(self.encoder, self.encoder.image_inputs([row["image"]]))[0]
        else:
            embedding = embed_images(self.model, self.processor, [row])[0]
        return embed_texts(self.model, self.processor, captions) @ embedding


def index_images(
    model: Any,
    processor: Any,
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
    accelerator: Accelerator | None = None,
) -> IndexFolder:
    """Embeds images into an index, resumes an incomplete index, or updates an existing one.

    An update adds new images, and new embeddings of files that have changed or could not be read before. Deleted images
    stay unless `prune` is set; those no longer listed follow the others. The folder is replaced in one step. Several
    processes write different shards, and the result is the same as that of one process. Images that cannot be read are
    an error, or are left out and recorded.

    Args:
        images: images of [`~hf_ngsan.extraction.list_images`], of a split if they come from a dataset.
        name: folder or Hub name of the model; searches load it.
        num_workers, images_per_shard: as for [`~hf_ngsan.extraction.extract_features`].
        backend: the search backend, as for [`~hf_ngsan.retrieval.open_backend`]; by default that of the index.
        prune: whether to remove images that are no longer listed or whose files were deleted.

    Raises:
        IndexFolderError, ExtractionError: the folder or the model cannot be used, or an image cannot be read.
    """
    accelerator = accelerator or extraction_accelerator()
    encoder = dual_encoder_of(model, processor)
    lock = lock_of(Path(os.path.realpath(folder)), "indexing")  # new folders are written next to the target of a link
    work = Indexing(lock, images, split, batch_size, images_per_shard, skip_errors, prune)

    def begin() -> tuple[IndexFolder, list[int], EarlierEmbeddings | None]:
        if backend is not None:
            check_backend(backend)
        if encoder.image_processor is None:
            raise ExtractionError(f"{name} has no vision encoder and cannot embed images; it needs visual features.")
        return work.begin(name, encoder.dimension, partial(model_fingerprint, model, processor))

    try:
        index, missing, earlier = on_main_process(accelerator, begin)
        work.write_shards(encoder, index, missing, earlier, num_workers, accelerator)
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
        columns = [of_item for *_, of_item in self.index.items_at(places)]
        of_places = self.index.embeddings_at(places), self.index.thumbnails_at(places), columns
        return {
            item: Row(embedding, thumbnail, self.stamps.get(item), columns)
            for item, embedding, thumbnail, columns in zip(known, *of_places, strict=True)
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
    images: ImageList
    split: str | None
    batch_size: int
    images_per_shard: int | None
    skip_errors: bool
    prune: bool

    @property
    def growing(self) -> Path:
        """Folder of a new index that will replace an existing one."""
        return self.lock.folder.with_name(f"{TEMPORARY_PREFIX}{self.lock.folder.name}.growing")

    def begin(
        self, name: str, dimension: int, fingerprint_of: Callable[[], str]
    ) -> tuple[IndexFolder, list[int], EarlierEmbeddings | None]:
        """Locks the folder; returns the index to write, its missing shards, and the embeddings that it replaces."""
        folder, images = self.lock.folder, self.images
        check_new_index(folder)
        if not folder.exists():
            folders.restore(folder)  # before the lock creates a folder of this name
        self.lock.acquire()
        folders.restore(folder)  # removes the old folder that a killed command had replaced
        folders.remove(temporary_path(folder))
        source = images.source if self.split is None else f"{images.source}, split {self.split}"
        fingerprint = fingerprint_of()
        earlier = earlier_embeddings(folder, images, source, fingerprint, self.prune)
        listed = images if earlier is None else earlier.images
        default = default_images_per_shard(len(listed), self.batch_size, MAX_IMAGES_PER_SHARD)
        description = IndexDescription(
            model=name,
            fingerprint=fingerprint,
            source=source,
            source_checksum=listed.checksum(self.split),
            dimension=dimension,
            num_items=len(listed),
            items_per_shard=self.images_per_shard or default,
        )
        if earlier is not None and (
            earlier.is_changed or earlier.index.description.source_checksum != description.source_checksum
        ):
            index = self.begin_anew(description)
            return index, index.missing_shards(), earlier
        folders.remove(self.growing)
        index = IndexFolder.begin(folder, description, besides=[self.lock.name])
        if not self.skip_errors and (skipped := skipped_images(index)):  # by an earlier run
            raise ExtractionError(f"{skipped[0][1]} {SKIP_ERRORS}")
        return index, index.missing_shards(), None

    def begin_anew(self, description: IndexDescription) -> IndexFolder:
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

    def write_shards(
        self,
        encoder: DualEncoder,
        index: IndexFolder,
        missing: Sequence[int],
        earlier: EarlierEmbeddings | None,
        num_workers: int | None,
        accelerator: Accelerator,
    ) -> None:
        """Embeds this process's share of missing shards, with the same batch boundaries in every run."""
        known = {} if earlier is None else earlier.places
        images = self.images if earlier is None else earlier.images
        batches: dict[int, list[list[int]]] = {}
        for number in missing[accelerator.process_index :: accelerator.num_processes]:
            items = [item for item in index.shard_items(number) if item not in known]
            batches[number] = [
                items[start : start + self.batch_size] for start in range(0, len(items), self.batch_size)
            ]
        in_order = [batch for of_shard in batches.values() for batch in of_shard]
        image_processor: Any = encoder.image_processor
        prepared = load_batches(
            images, in_order, image_processor, num_workers, accelerator, "indexing", thumbnail_side=THUMBNAIL_SIDE
        )
        for number, of_shard in batches.items():
            skipped: list[tuple[str, str]] = []
            rows: dict[int, Row] = {} if earlier is None else earlier.rows(index.shard_items(number))
            for batch in islice(prepared, len(of_shard)):
                if batch.unreadable and not self.skip_errors:
                    raise ExtractionError(f"{batch.unreadable[0][1]} {SKIP_ERRORS}")
                skipped += [(images.images[item].file_name, reason) for item, reason in batch.unreadable]
                if not batch.positions:
                    continue
                embeddings = embed_pixels(encoder, batch.inputs)
                if not np.isfinite(embeddings).all():
                    name = images.images[batch.positions[-1]].file_name
                    raise ExtractionError(f"{name}: the model's embeddings are not finite; check its weights.")
                of_batch = batch.positions, embeddings, batch.thumbnails, batch.sizes
                for item, embedding, thumbnail, (width, height) in zip(*of_batch, strict=True):
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
