"""Images indexed by a dual encoder, and found again by a text or by another image."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..extraction import ImageList
from ..extraction.errors import ExtractionError
from ..extraction.loading import load_batches
from ..models.images import load_image
from ..progress_display import ProgressDisplay
from ..provenance import settings_checksum, unusual_settings, weights_checksum
from ..retrieval import Hit, IndexDescription, IndexFolder, IndexFolderError, check_backend, open_backend, search
from .retrieval_embedding import embed_texts

IMAGES_PER_SHARD = 1000
"""What a kill can cost."""


def model_fingerprint(model: PreTrainedModel, processor: Any) -> str:
    """Returns what tells a dual encoder and its preprocessing from any other."""
    parts = weights_checksum(model), settings_checksum(unusual_settings(processor.image_processor))
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
    num_workers: int = 0,
    images_per_shard: int | None = None,
    strict: bool = False,
    backend: str | None = None,
) -> IndexFolder:
    """Embeds images into an index, or continues an index that was begun.

    Args:
        model, processor: a dual encoder with a vision encoder, in evaluation mode, and its processor.
        images: from [`~hf_ngsan.extraction.list_images`].
        folder: of the index; made if absent.
        name: folder or Hub name of the model, which a search loads.
        split: of the images, if they are of a dataset.
        batch_size: images embedded together.
        num_workers: processes that read images; 0 = this one.
        images_per_shard: what a kill can cost; `IMAGES_PER_SHARD` by default.
        strict: whether an image that cannot be read is an error; else it is left out and remembered.
        backend: what searches, as [`~hf_ngsan.retrieval.open_backend`] takes it, and gets the embeddings; by default
            what the index was made for, and `exact` for a new one.

    Raises:
        IndexFolderError: the folder holds something else, or an index of another model or other images; or the backend
            cannot be used.
        ExtractionError: the model sees no images, or an image cannot be read and `strict` is set.
    """
    if model.vision is None or processor.image_processor is None:
        raise ExtractionError(f"{name} has no vision encoder, so it cannot embed images; it takes visual features.")
    if backend is not None:
        check_backend(backend)
    description = IndexDescription(
        model=name,
        fingerprint=model_fingerprint(model, processor),
        source=images.source,
        source_checksum=images.checksum(split),
        dimension=model.config.projection_dim,
        num_items=len(images),
        items_per_shard=images_per_shard or IMAGES_PER_SHARD,
    )
    index = IndexFolder.begin(Path(folder), description)
    missing = index.missing_shards()
    done = len(images) - sum(len(index.shard_items(number)) for number in missing)
    with ProgressDisplay("indexing", len(images), done, unit="images") as display:
        for number in missing:
            positions = index.shard_items(number)
            names, embeddings, skipped = [], [], []
            batches = [positions[start : start + batch_size] for start in range(0, len(positions), batch_size)]
            for batch in load_batches(images, batches, processor.image_processor, num_workers):
                if strict and batch.unreadable:
                    raise ExtractionError(batch.unreadable[0][1])
                skipped += [(images.images[place].file_name, reason) for place, reason in batch.unreadable]
                if batch.positions:
                    names += [images.images[place].file_name for place in batch.positions]
                    embeddings.append(embed_pixels(model, batch.inputs))
                done += len(batch.positions) + len(batch.unreadable)
                display.update(done)
            empty = np.zeros((0, description.dimension), np.float32)
            index.write_shard(number, names, np.concatenate([empty, *embeddings]), skipped)
    backend = index.backend if backend is None else backend
    open_backend(index, backend).add()
    if backend != index.backend:
        index.backend = backend
    return index


def embed_pixels(model: Any, inputs: dict[str, torch.Tensor]) -> np.ndarray:
    """Returns embeddings of preprocessed images, float32 `(images, dimension)`."""
    on_device = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    with torch.inference_mode():
        return model.get_image_features(**on_device).pooler_output.float().cpu().numpy()


def search_images(
    model: Any,
    processor: Any,
    index: IndexFolder,
    *,
    text: str | None = None,
    image: Any = None,
    top_k: int = 9,
    backend: str | None = None,
) -> list[Hit]:
    """Returns the images of an index that are nearest to a text or to an image.

    Args:
        model, processor: the dual encoder that made the index.
        index: see [`~hf_ngsan.retrieval.IndexFolder`].
        text: what to look for; or
        image: a path, URL or image of Pillow, as [`~hf_ngsan.models.images.load_image`] reads it.
        top_k: images at most.
        backend: what searches, as [`~hf_ngsan.retrieval.open_backend`] takes it; by default what the index was made
            for.

    Raises:
        ValueError: no query or two, a text without any word that the model knows, or an image that cannot be read.
        IndexFolderError: the index is of another model, or damaged; or the backend cannot be used.
    """
    if (text is None) == (image is None):
        raise ValueError("Give a text or an image to look for, and not both.")
    if model_fingerprint(model, processor) != index.description.fingerprint:
        raise IndexFolderError(
            f"{index.folder} was made with another model, {index.description.model}; search it with that one, or index "
            "the images again."
        )
    if text is None:
        query = embed_pixels(model, dict(processor(images=load_image(image))))
    else:
        check_query(processor, text)
        query = embed_texts(model, processor, [text])
    return search(index, query, top_k, backend)[0]


def check_query(processor: Any, text: str) -> None:
    """Raises a ValueError for a query without any word, too long, or of unknown words alone."""
    ids = processor(text=text)["input_ids"][0].tolist()
    if set(ids) <= {processor.tokenizer.unk_token_id, *processor.tokenizer.all_special_ids}:
        raise ValueError(f"The model knows no word of {text!r}; use other words.")
