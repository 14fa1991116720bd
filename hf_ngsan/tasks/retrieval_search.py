"""Embeddings by a dual encoder, search of an index by a text or an image, and reranking of captions."""

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedModel

from ..data.collator import visual_arguments
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..io.files import write_file_atomically
from ..loading.models import is_guest
from ..loading.provenance import model_fingerprint
from ..models.image_processing_captioning import load_image
from ..retrieval import Hit, IndexFolder, IndexFolderError, search_current
from ..visualization import plot_contact_sheet, save_figure


def embed_images(model: PreTrainedModel, processor: Any, rows: Sequence[dict]) -> np.ndarray:
    """Returns the embeddings of rows with images or visual features, float32 `(rows, dimension)`."""
    encoder, given = dual_encoder_of(model, processor), visual_arguments(rows)
    if is_guest(model.config):
        return embed_pixels(encoder, encoder.image_inputs(given["images"]))
    return embed_pixels(encoder, processor(**given))


def embed_pixels(encoder: DualEncoder, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Returns the embeddings of images with their inputs, float32 `(images, dimension)`."""
    with torch.inference_mode():
        return encoder.embed_images(inputs).cpu().numpy()


def embed_texts(model: PreTrainedModel, processor: Any, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
    """Returns the embeddings of texts, float32 `(texts, dimension)`; those that are too long are cut."""
    encoder, parts = dual_encoder_of(model, processor), []
    for start in range(0, len(texts), batch_size):
        with torch.inference_mode():
            parts.append(encoder.embed_texts(encoder.text_inputs(texts[start : start + batch_size])).cpu().numpy())
    return np.concatenate(parts)


class PassingImages:
    """Embeds images while something else reads them, so that each is decoded once.

    Args:
        model, processor: a dual encoder that reads images, and its processor.
        batch_size: images embedded together.
    """

    def __init__(self, model: PreTrainedModel, processor: Any, batch_size: int = 32) -> None:
        self.encoder = dual_encoder_of(model, processor)
        if self.encoder.image_processor is None:
            raise ValueError("This dual encoder has no vision encoder; give one that reads images.")
        self.batch_size = batch_size
        self.names: list[str] = []
        self.waiting: list[Any] = []
        self.embeddings: list[np.ndarray] = []

    def seeing(self, sources: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
        """Yields each source for the captioner, its image decoded; one without a readable image stays as it is."""
        for source, name in zip(sources, names, strict=True):
            given = source.get("image") if isinstance(source, Mapping) else source
            try:
                image = load_image(given)
            except Exception:  # the captioner reports the fault
                yield source
                continue
            self.names.append(name)
            self.waiting.append(image)
            if len(self.waiting) == self.batch_size:
                self.embed()
            yield {**source, "image": image} if isinstance(source, Mapping) else image

    def embed(self) -> None:
        if self.waiting:
            self.embeddings.append(embed_pixels(self.encoder, self.encoder.image_inputs(self.waiting)))
            self.waiting = []

    def save(self, path: str | os.PathLike) -> None:
        """Writes `names` and `embeddings`, float32 `(images, dimension)`, to a file of NumPy, whole or not at all."""
        self.embed()
        found = np.concatenate([np.zeros((0, self.encoder.dimension), np.float32), *self.embeddings])
        arrays: dict[str, Any] = {"names": np.array(self.names, dtype=str), "embeddings": found}
        write_file_atomically(path, lambda file: np.savez(file, **arrays))


SIMILARITY_WEIGHT = 2.0
"""Chosen on the validation split of Flickr8k for `mhsan-flickr8k` (docs/results.md)."""


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
        model, processor: the dual encoder that made the index.
        index: see [`~hf_ngsan.retrieval.IndexFolder`]; several are searched as one.
        text: the query; or
        image: a path, URL or image of Pillow, as [`~hf_ngsan.models.image_processing_captioning.load_image`] reads it.
        top_k: images at most.
        backend: the search backend, as [`~hf_ngsan.retrieval.open_backend`] takes it; by default that of the index.
        filter: an expression of Milvus, such as `width > 500`, that images must fulfil.

    Raises:
        ValueError: no query or two, a text without any word that the model knows, or an image that cannot be read.
        IndexFolderError: the index is of another model, empty or damaged; the backend or the filter cannot be used, or
            no image fulfils it.
    """
    indexes = [index] if isinstance(index, IndexFolder) else list(index)
    if (text is None) == (image is None):
        raise ValueError("Give a text or an image to look for, and not both.")
    if text is None:
        encoder = dual_encoder_of(model, processor)
        query = embed_pixels(encoder, encoder.image_inputs([image]))
    else:
        check_query(processor, text)
        query = embed_texts(model, processor, [text])
    return search_current(indexes, model_fingerprint(model, processor), query, top_k, backend, filter)


def check_query(processor: Any, text: str) -> None:
    """Raises a ValueError for a query without any word, too long, or of unknown words alone."""
    [ids] = processor(text=[text])["input_ids"]
    ids = ids.tolist() if torch.is_tensor(ids) else ids
    if set(ids) <= {processor.tokenizer.unk_token_id, *processor.tokenizer.all_special_ids}:
        raise ValueError(f"The model knows no word of {text!r:.80}; use other words.")


def draw_hits(index: IndexFolder | Sequence[IndexFolder], hits: Sequence[Hit], title: str, path: str | Path) -> None:
    """Draws the thumbnails of images that were found, with their scores and names.

    Args:
        index: the index or indexes that were searched, as for [`search_images`].
        hits: the images, in the order of the drawing.
        title: the query.
        path: file of the figure.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        IndexFolderError: a thumbnail is damaged, or another index has taken the place of this one.
    """
    indexes = [index] if isinstance(index, IndexFolder) else index
    for one in indexes:
        if not one.is_current:
            raise IndexFolderError(f"{one.folder} has been replaced since it was searched; search it again.")
    stored = [indexes[hit.index_number].thumbnail_at(hit.place) for hit in hits]
    images = [None if thumbnail is None else Image.open(io.BytesIO(thumbnail)) for thumbnail in stored]
    labels = [f"{hit.score:.3f}  {Path(hit.name).name}" for hit in hits]
    save_figure(plot_contact_sheet(images, labels, title), path)


class Reranker:
    """Orders the captions of an image, such as the beams of a captioner, with a dual encoder.

    A caption counts by its mean log-probability plus `weight` times its similarity (cosine) to the image.

    Args:
        model: a dual encoder in evaluation mode.
        processor: the model's.
        weight: weight of the similarity; 0 keeps the captioner's order.
    """

    def __init__(self, model: Any, processor: Any, weight: float = SIMILARITY_WEIGHT) -> None:
        self.model, self.processor, self.weight = model, processor, weight
        self.encoder = dual_encoder_of(model, processor)

    def order(self, image: Any, captions: Sequence[str], scores: Sequence[float]) -> list[int]:
        """Returns the places of captions, the best first; of equal ones the first.

        Args:
            image: a row with `image` or `visual_features`, or what
                [`~hf_ngsan.models.image_processing_captioning.load_image`] reads.
            captions: at least one; one without a word that the model knows counts as an unknown word.
            scores: mean log-probability of each caption's tokens.

        Raises:
            ValueError: an image that cannot be read, or features that the dual encoder does not take.
        """
        totals = np.asarray(scores) + self.weight * self.similarities(image, captions)
        return np.argsort(-totals, kind="stable").tolist()

    def similarities(self, image: Any, captions: Sequence[str]) -> np.ndarray:
        """Returns the cosine of each caption with the image, as [`order`] takes them."""
        return embed_texts(self.model, self.processor, captions) @ self.embed(image)

    def embed(self, image: Any) -> np.ndarray:
        """Returns the embedding of an image, float32 `(dimension,)`."""
        if not isinstance(image, Mapping):
            return embed_pixels(self.encoder, self.encoder.image_inputs([image]))[0]
        row = dict(image)
        if self.encoder.image_processor is not None and row.get("image") is not None:
            row = {"image": row["image"]}
        return embed_images(self.model, self.processor, [row])[0]
