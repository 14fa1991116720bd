"""Embeddings by a dual encoder, their retrieval scores, search of an index, and reranking of captions.

```python
search_images(model, processor, index, text="a dog jumps over a log")[0].name
```
"""

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from PIL import Image
from transformers import PreTrainedModel

from ..data.coco_files import in_order, read_json, records_of
from ..data.collator import visual_arguments
from ..data.errors import DataError
from ..data.vocabulary import with_words
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..loading.models import is_guest
from ..loading.provenance import model_fingerprint
from ..metrics.retrieval import map_at_r, retrieval_metrics, retrieval_ranks
from ..models.modeling_mhsan import diversity_penalty
from ..retrieval import Hit, IndexFolder, IndexFolderError, search_current
from ..training.batches import map_sharded, take
from ..visualization import plot_contact_sheet, save_figure
from ..visualization.heads import head_overlap


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


class Positives(NamedTuple):
    """Correct matches, as places among the images and captions of a dataset.

    Attributes:
        image_to_text: correct captions of each image.
        text_to_image: correct images of each caption.
    """

    image_to_text: dict[int, list[int]]
    text_to_image: dict[int, list[int]]


def read_positives(
    image_to_text: str | Path, text_to_image: str | Path, caption_file: str | Path, rows: Dataset
) -> Positives:
    """Reads the correct matches of captions and images.

    Args:
        image_to_text: `eccv_image_to_caption.json`: a JSON object from image id to a list of caption ids.
        text_to_image: `eccv_caption_to_image.json`, the other direction.
        caption_file: COCO's `captions_*.json`, which has the ids of captions.
        rows: the dataset that is evaluated, with `image_id` and `captions`.

    Raises:
        DataError: a file names an image or a caption that the dataset does not have.
    """
    images = {int(image_id): place for place, image_id in enumerate(rows["image_id"])}
    captions = places_of_captions(caption_file, images, rows["captions"])

    def places(file: str | Path, queries: Mapping[int, int], items: Mapping[int, int]) -> dict[int, list[int]]:
        content: Any = read_json(file)
        try:
            return {queries[int(key)]: [items[int(value)] for value in values] for key, values in content.items()}
        except KeyError as error:
            raise DataError(
                f"{file} has the id {error}, which the dataset does not have; evaluate the split that the file is of."
            ) from None

    return Positives(places(image_to_text, images, captions), places(text_to_image, captions, images))


def places_of_captions(
    file: str | Path, images: Mapping[int, int], captions: Sequence[Sequence[str]]
) -> dict[int, int]:
    """Returns the place of each caption id; captions are counted image by image."""
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    numbered = enumerate((image_id, text) for image_id, of in zip(images, captions, strict=True) for text in of)
    for place, (image_id, text) in numbered:
        places[image_id, " ".join(text.split())].append(place)
    by_id = {}
    for annotation in in_order(records_of(read_json(file), "annotations", file)):
        key = annotation.integer("image_id"), annotation.text("caption")
        if places.get(key):
            by_id[annotation.integer("id")] = places[key].pop(0)
    return by_id


@dataclass(frozen=True)
class PairEmbeddings:
    """Images and captions in one space.

    Attributes:
        images: float32 `(images, dimension)`, of length 1.
        captions: float32 `(captions, dimension)`, of length 1, image by image.
        caption_images: int64 `(captions,)`, the image of each caption.
    """

    images: np.ndarray
    captions: np.ndarray
    caption_images: np.ndarray

    def scores(self, folds: int = 1) -> dict[str, float]:
        """Returns recalls, median ranks and rsum; see [`~hf_ngsan.metrics.retrieval.retrieval_metrics`]."""
        return retrieval_metrics(self.images @ self.captions.T, self.caption_images, folds=folds)

    def map_at_r(self, positives: Positives) -> dict[str, float]:
        """Returns mAP@R in both directions, in percent; see [`~hf_ngsan.metrics.retrieval.map_at_r`]."""
        similarity = self.images @ self.captions.T
        return {
            "image_to_text_map_at_r": map_at_r(similarity, positives.image_to_text),
            "text_to_image_map_at_r": map_at_r(similarity.T, positives.text_to_image),
        }

    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rank of the right answer to each image and to each caption; 1 is the first place."""
        return retrieval_ranks(self.images @ self.captions.T, self.caption_images)


def embed_pairs(
    model: PreTrainedModel,
    processor: Any,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
) -> PairEmbeddings:
    """Embeds every image and every caption of a dataset once.

    Args:
        model, processor: a dual encoder on the accelerator's device, not wrapped and in evaluation mode.
        rows: a `datasets.Dataset` of the feature contract, with captions.
        accelerator: accelerator of the processes that split the work; each gets the whole result.
        batch_size: images embedded together in one process.
    """

    def embed(indices: range) -> list[tuple[np.ndarray, np.ndarray]]:
        batch = take(rows, indices)
        numbers = [len(row["captions"]) for row in batch]
        texts = embed_texts(model, processor, [caption for row in batch for caption in row["captions"]])
        of_images = np.split(texts, np.cumsum(numbers)[:-1])
        return list(zip(embed_images(model, processor, batch), of_images, strict=True))

    pairs = map_sharded(embed, len(rows), batch_size, accelerator)
    images, captions = zip(*pairs, strict=True)
    numbers = [len(of_image) for of_image in captions]
    return PairEmbeddings(np.stack(images), np.concatenate(captions), np.repeat(np.arange(len(images)), numbers))


def measure_head_diversity(
    model: Any, processor: Any, rows: Dataset, accelerator: Accelerator | None = None, batch_size: int = 64
) -> dict[str, float]:
    """Measures the heads of either side; see [`embed_pairs`] for the arguments.

    Returns:
        For each side with heads `..._diversity_penalty`, the mean of ||A A^T - I||_F^2 (eq. 5 of Park et al. 2020, the
        "diversity loss" of its table 5), and with several heads `..._head_overlap`, the mean cosine of the maps of two
        heads, in [0, 1].
    """

    def measure(indices: range) -> list[dict[str, list[float]]]:
        batch = take(rows, indices)
        texts = with_words(processor.tokenizer, [caption for row in batch for caption in row["captions"]])
        measured: dict[str, list[float]] = {}
        with torch.inference_mode():
            if model.config.num_image_heads:
                images = model.get_image_features(**processor(**visual_arguments(batch)).to(model.device))
                measured |= measure_maps("image", images.attentions[-1])
            if model.config.num_text_heads:
                captions = model.get_text_features(**processor(text=texts, truncation=True).to(model.device))
                measured |= measure_maps("text", captions.attentions[-1])
        return [measured] + [{}] * (len(batch) - 1)

    values: dict[str, list[float]] = defaultdict(list)
    for measured in map_sharded(measure, len(rows), batch_size, accelerator):
        for name, of_rows in measured.items():
            values[name] += of_rows
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def measure_maps(side: str, weights: torch.Tensor) -> dict[str, list[float]]:
    """Returns the penalty and the overlap of each row of maps `(rows, heads, positions)`."""
    measured: dict[str, list[float]] = {f"{side}_diversity_penalty": diversity_penalty(weights).tolist()}
    if weights.shape[1] > 1:
        measured[f"{side}_head_overlap"] = [head_overlap([maps]) for maps in weights.float().cpu().numpy()]
    return measured


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
        IndexFolderError: another index has taken the place of this one.
    """
    indexes = [index] if isinstance(index, IndexFolder) else index
    for searched in indexes:
        if not searched.is_current:
            raise IndexFolderError(f"{searched.folder} has been replaced since it was searched; search it again.")
    stored = [indexes[hit.index_number].thumbnail_at(hit.place) for hit in hits]
    images = [None if thumbnail is None else Image.open(io.BytesIO(thumbnail)) for thumbnail in stored]
    labels = [f"{hit.score:.3f}  {Path(hit.name).name}" for hit in hits]
    save_figure(plot_contact_sheet(images, labels, title), path)


class Reranker:
    """Orders the captions of an image, such as the beams of a captioner, with a dual encoder.

    A caption counts by its mean log-probability plus `weight` times its similarity (cosine) to the image.

    Args:
        model, processor: a dual encoder in evaluation mode, and its processor.
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
        """
        totals = np.asarray(scores) + self.weight * self.similarities(image, captions)
        return np.argsort(-totals, kind="stable").tolist()

    def similarities(self, image: Any, captions: Sequence[str]) -> np.ndarray:
        """Returns the cosine of each caption with the image, as [`order`] takes them."""
        return embed_texts(self.model, self.processor, captions) @ self.embed(image)

    def embed(self, image: Any) -> np.ndarray:
        """Returns the embedding of an image, float32 `(dimension,)`."""
        row = dict(image) if isinstance(image, Mapping) else {"image": image}
        if self.encoder.image_processor is not None and row.get("image") is not None:
            return embed_pixels(self.encoder, self.encoder.image_inputs([row["image"]]))[0]
        return embed_images(self.model, self.processor, [row])[0]
