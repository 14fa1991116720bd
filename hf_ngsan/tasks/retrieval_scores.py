"""Retrieval scores of images and captions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel

from ..data.coco_files import in_order, read_json, records_of
from ..data.collator import visual_arguments
from ..data.errors import DataError
from ..data.vocabulary import with_words
from ..metrics.retrieval import map_at_r, retrieval_metrics, retrieval_ranks
from ..models.modeling_mhsan import diversity_penalty
from ..training.batches import map_sharded, take
from ..visualization.heads import head_overlap
from .retrieval_search import embed_images, embed_texts


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
        DataError: a file cannot be used, or names an image or a caption that the dataset does not have.
    """
    images = {int(image_id): place for place, image_id in enumerate(rows["image_id"])}
    captions = places_of_captions(caption_file, images, rows["captions"])
    return Positives(
        translated(image_to_text, images, captions, "image", "caption"),
        translated(text_to_image, captions, images, "caption", "image"),
    )


def places_of_captions(
    file: str | Path, images: Mapping[int, int], captions: Sequence[Sequence[str]]
) -> dict[int, int]:
    """Returns the place of each caption id; captions are counted image by image."""
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    place = 0
    for image_id, texts in zip(images, captions, strict=True):
        for text in texts:
            places[image_id, " ".join(text.split())].append(place)
            place += 1
    found = {}
    for annotation in in_order(records_of(read_json(file), "annotations", file)):
        key = annotation.integer("image_id"), annotation.text("caption")
        if places.get(key):
            found[annotation.integer("id")] = places[key].pop(0)
    return found


def translated(
    file: str | Path, queries: Mapping[int, int], items: Mapping[int, int], query: str, item: str
) -> dict[int, list[int]]:
    """Returns the lists of a file with ids replaced by places."""
    content = read_json(file)
    if not isinstance(content, dict) or not content:
        raise DataError(f"{file} must be a JSON object from {query} ids to lists of {item} ids.")
    found = {}
    for key, values in content.items():
        if not isinstance(values, list) or not values:
            raise DataError(f"{file}: {query} {key} has {values!r:.60}; it must be a list of {item} ids.")
        found[place_of(queries, key, query, file)] = [place_of(items, value, item, file) for value in values]
    return found


def place_of(places: Mapping[int, int], key: object, kind: str, file: str | Path) -> int:
    """Returns the place of an id, which a file may have as a string."""
    try:
        return places[int(key) if isinstance(key, str) else key]  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{file} names {kind} {key!r:.60}, which the dataset does not have; evaluate the whole split that the file "
            "is of."
        ) from None


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
        model: a dual encoder on the accelerator's device, not wrapped, in evaluation mode.
        processor: the model's.
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
    """Measures the heads of either side.

    Args:
        model: a dual encoder on the accelerator's device, in evaluation mode.
        processor: the model's.
        rows: rows with images or visual features, and captions.
        accelerator: accelerator of the processes that split the work; each gets the whole result.
        batch_size: images measured together in one process.

    Returns:
        For each side with heads `..._diversity_penalty`, the mean of ||A A^T - I||_F^2 (eq. 5 of Park et al. 2020, the
        "diversity loss" of its table 5), and with several heads `..._head_overlap`, the mean cosine of the maps of two
        heads, in [0, 1].
    """

    def measure(indices: range) -> list[dict[str, list[float]]]:
        batch = take(rows, indices)
        texts = with_words(processor.tokenizer, [caption for row in batch for caption in row["captions"]])
        found: dict[str, list[float]] = {}
        with torch.inference_mode():
            if model.config.num_image_heads:
                images = model.get_image_features(**processor(**visual_arguments(batch)).to(model.device))
                found |= of_maps("image", images.attentions[-1])
            if model.config.num_text_heads:
                captions = model.get_text_features(**processor(text=texts, truncation=True).to(model.device))
                found |= of_maps("text", captions.attentions[-1])
        return [found] + [{}] * (len(batch) - 1)

    measured = map_sharded(measure, len(rows), batch_size, accelerator)
    names = dict.fromkeys(name for one in measured for name in one)
    values = {name: [value for one in measured for value in one.get(name, ())] for name in names}
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def of_maps(side: str, weights: torch.Tensor) -> dict[str, list[float]]:
    """Returns the penalty and the overlap of each row of maps `(rows, heads, positions)`."""
    found: dict[str, list[float]] = {f"{side}_diversity_penalty": diversity_penalty(weights).tolist()}
    if weights.shape[1] > 1:
        found[f"{side}_head_overlap"] = [head_overlap([maps]) for maps in weights.float().cpu().numpy()]
    return found
