"""Indexing of images by a dual encoder, on one process or many.

index = index_images(model, processor, list_images("photos"), "photos.index", name="DUAL_ENCODER")
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from transformers import PreTrainedModel

from ...extraction import ImageList
from ...extraction.errors import ExtractionError
from ...extraction.loading import PreparedBatch, load_batches, next_batch
from ...extraction.plan import default_images_per_shard, refuse_changed_images
from ...extraction.together import (
    default_num_workers,
    extraction_accelerator,
    lock_of,
    on_main_process,
    wait_for_everyone,
)
from ...ground.files import FileStamp
from ...ground.progress_display import ProgressDisplay
from ...guests.dual_encoders import DualEncoder, dual_encoder_of
from ...loading.provenance import settings_checksum, unusual_settings, weights_checksum
from ...retrieval import IndexDescription, IndexFolder, check_backend, check_new_index, open_backend
from .encoders import embed_pixels

MAX_IMAGES_PER_SHARD = 1000
"""Images that a killed process may have to embed again."""
THUMBNAIL_SIDE = 160
"""Longest side of a thumbnail in pixels."""


def model_fingerprint(model: PreTrainedModel, processor: Any) -> str:
    """Returns a checksum of the weights of a dual encoder and of its preprocessing."""
    image_processor = processor.image_processor
    settings = {} if image_processor is None else unusual_settings(image_processor)
    parts = weights_checksum(model), settings_checksum(settings)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


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
    strict: bool = False,
    backend: str | None = None,
    accelerator: Accelerator | None = None,
) -> IndexFolder:
    """Embeds images into an index, or continues an index that was begun.

    Several processes write shards of their own, and together the index that one process would write.

    Args:
        model, processor: a dual encoder with a vision encoder, in evaluation mode, and its processor.
        images: from [`~hf_ngsan.extraction.list_images`].
        folder: of the index; made if absent.
        name: folder or Hub name of the model, which a search loads.
        split: of the images, if they are of a dataset.
        batch_size: images embedded together.
        num_workers: processes that read images, for each process that has a model; `None` = the processors that each
            has, 4 at most.
        images_per_shard: images written together, so what a process that is killed has to embed again at most; chosen
            by the number of images if `None`.
        strict: whether an image that cannot be read is an error; else it is left out and remembered.
        backend: the search backend, as [`~hf_ngsan.retrieval.open_backend`] takes it, which gets the embeddings; by
            default that of the index, and `exact` for a new one.
        accelerator: to share the work among its processes; made if `None`.

    Raises:
        IndexFolderError: the folder holds something else, or an index of another model or other images; or the backend
            cannot be used.
        ExtractionError: the model sees no images, an image cannot be read and `strict` is set, an image is another
            one than when it was indexed, or another command is writing the folder.
    """
    accelerator = accelerator or extraction_accelerator()
    lock, encoder = lock_of(Path(folder), "indexing"), dual_encoder_of(model, processor)

    def plan() -> tuple[IndexFolder, list[int]]:
        if encoder.image_processor is None:
            raise ExtractionError(f"{name} has no vision encoder, so it cannot embed images; it takes visual features.")
        if backend is not None:
            check_backend(backend)
        check_new_index(lock.folder)
        description = IndexDescription(
            model=name,
            fingerprint=model_fingerprint(model, processor),
            source=images.source,
            source_checksum=images.checksum(split),
            dimension=encoder.dimension,
            num_items=len(images),
            items_per_shard=images_per_shard or default_images_per_shard(len(images), batch_size, MAX_IMAGES_PER_SHARD),
        )
        lock.acquire()
        index = IndexFolder.begin(lock.folder, description, besides=[lock.name])
        refuse_changed_images(images, index.stamps())
        return index, index.missing_shards()

    def publish() -> None:
        chosen = index.backend if backend is None else backend
        open_backend(index, chosen).add()
        if chosen != index.backend:
            index.backend = chosen

    try:
        index, missing = on_main_process(accelerator, plan)
        own = missing[accelerator.process_index :: accelerator.num_processes]
        workers = default_num_workers(accelerator) if num_workers is None else num_workers
        write_shards(encoder, images, index, own, batch_size, workers, strict, accelerator)
        wait_for_everyone(accelerator)
        on_main_process(accelerator, publish)
    finally:
        lock.release()
    return index


def write_shards(
    encoder: DualEncoder,
    images: ImageList,
    index: IndexFolder,
    numbers: Sequence[int],
    batch_size: int,
    num_workers: int,
    strict: bool,
    accelerator: Accelerator,
) -> None:
    """Embeds the images of some shards, in batches that are cut at the same places in every run."""
    batches = {
        number: [items[start : start + batch_size] for start in range(0, len(items), batch_size)]
        for number in numbers
        for items in [index.shard_items(number)]
    }
    in_order = [batch for of_shard in batches.values() for batch in of_shard]
    workers = num_workers if in_order else 0
    image_processor: Any = encoder.image_processor
    batches_read = load_batches(images, in_order, image_processor, workers, thumbnail_side=THUMBNAIL_SIDE)
    prepared = iter(batches_read)
    process, processes = accelerator.process_index + 1, accelerator.num_processes
    title = "indexing" if processes == 1 else f"indexing, process {process} of {processes}"
    with ProgressDisplay(title, sum(map(len, in_order)), shown=process == 1) as display:
        done = 0
        for number, of_shard in batches.items():
            for count in write_shard(encoder, images, index, number, len(of_shard), prepared, strict):
                done += count
                display.update(done)


def write_shard(
    encoder: DualEncoder,
    images: ImageList,
    index: IndexFolder,
    number: int,
    num_batches: int,
    prepared: Iterator[PreparedBatch],
    strict: bool,
) -> Iterator[int]:
    """Writes one shard, and yields the number of images of each batch."""
    names: list[str] = []
    skipped: list[tuple[str, str]] = []
    thumbnails: list[bytes] = []
    captions: list[tuple[str, ...]] | None = [] if images.has_captions else None
    stamps: dict[int, FileStamp] = {}
    embeddings = [np.zeros((0, index.description.dimension), np.float32)]
    for _ in range(num_batches):
        batch = next_batch(prepared)
        if strict and batch.unreadable:
            raise ExtractionError(batch.unreadable[0][1])
        skipped += [(images.images[place].file_name, reason) for place, reason in batch.unreadable]
        if batch.positions:
            names += [images.images[place].file_name for place in batch.positions]
            if captions is not None:
                captions += [images.images[place].captions or () for place in batch.positions]
            thumbnails += batch.thumbnails
            stamps |= batch.stamps
            embeddings.append(embed_pixels(encoder, batch.inputs))
            if not np.isfinite(embeddings[-1]).all():
                raise ExtractionError(f"{names[-1]}: the model's embeddings are not finite; check its weights.")
        yield len(batch.positions) + len(batch.unreadable)
    index.write_shard(number, names, np.concatenate(embeddings), skipped, thumbnails, stamps, captions)
