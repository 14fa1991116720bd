"""Image search with a dual encoder: queries, and reranking of captions by similarity to an image."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from transformers import PreTrainedModel

from ..data.collator import visual_arguments
from ..extraction.image_list import ImageList
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..loading.calibration import SearchCalibration
from ..loading.models import is_guest
from ..loading.provenance import model_fingerprint
from ..models.attention_maps import attention_maps
from ..models.images import load_image
from ..retrieval import Hit, IndexFolder, IndexFolderError, search_current
from ..training.batches import map_sharded, take
from ..visualization import Match, explain_match, plot_contact_sheet, plot_match, save_figure
from ..visualization.figures import FIGURE_SIDE
from ..visualization.heads import explain_match_of_guest
from .retrieval_indexing import IndexEncoder, write_index

COLLECTION = 16  # number of images in each search of the calibration
SIMILARITY_WEIGHT = 2.0  # chosen on the validation split of Flickr8k for `mhsan-flickr8k` (docs/results.md)


def embed_images(model: PreTrainedModel, processor: Any, rows: Sequence[dict]) -> np.ndarray:
    """Returns embeddings of rows with images or visual features, float32 `(rows, dimension)`."""
    encoder, inputs = dual_encoder_of(model, processor), visual_arguments(rows)
    if is_guest(model.config):
        return embed_pixels(encoder, encoder.image_inputs(inputs["images"]))
    return embed_pixels(encoder, processor(**inputs))


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
        top_k: maximum number of images.
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

    embedded = [map_sharded(partial(embed, part), len(part), batch_size, description="embedding") for part in rows]
    images = np.array(list(chain.from_iterable(embedded)))
    if len(images) <= COLLECTION:
        raise ValueError(f"There are {len(images)} images; calibration needs more than {COLLECTION}.")
    captions = list(chain.from_iterable(dataset["captions"] for dataset in rows))
    image_of_caption = np.repeat(np.arange(len(images)), list(map(len, captions)))
    similarities = embed_texts(model, processor, list(chain.from_iterable(captions))) @ images.T
    matching = similarities[np.arange(len(image_of_caption)), image_of_caption]
    random, best = np.random.default_rng(0), []
    for image_similarities, number in zip(similarities, image_of_caption, strict=True):
        drawn = random.choice(len(images) - 1, COLLECTION, replace=False)
        best.append(image_similarities[drawn + (drawn >= number)].max())
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
    model: Any, processor: Any, images: ImageList, folder: str | Path, *, name: str, **options: Any
) -> IndexFolder:
    """Embeds images into an index by a dual encoder; see [`~hf_ngsan.tasks.retrieval_indexing.write_index`]."""
    return write_index(image_encoder_of(model, processor), images, folder, name=name, **options)


def image_encoder_of(model: Any, processor: Any) -> IndexEncoder:
    encoder, fingerprint = dual_encoder_of(model, processor), model_fingerprint(model, processor)
    return IndexEncoder(encoder.image_processor, encoder.dimension, fingerprint, partial(embed_pixels, encoder))
