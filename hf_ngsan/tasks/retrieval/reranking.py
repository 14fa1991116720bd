"""Captions of an image put into the order of their similarity to it, by a dual encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...models.images import load_image
from .evaluate import embed_images, embed_texts
from .index import embed_pixels


class Reranker:
    """Orders the captions of an image, such as the beams of a captioner, by a dual encoder's similarity.

    Args:
        model: a dual encoder in evaluation mode.
        processor: the model's.
    """

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor

    def order(self, image: Any, captions: Sequence[str]) -> list[int]:
        """Returns the places of captions, the most similar first; of equal ones the first.

        Args:
            image: a row with `image` or `visual_features`, or what [`~hf_ngsan.models.images.load_image`] reads.
            captions: at least one; one without a word that the model knows counts as an unknown word.

        Raises:
            ValueError: an image that cannot be read, or features that the dual encoder does not take.
        """
        embeds = embed_texts(self.model, self.processor, captions) @ self.embed(image)
        return np.argsort(-embeds, kind="stable").tolist()

    def embed(self, image: Any) -> np.ndarray:
        """Returns the embedding of an image, float32 `(dimension,)`."""
        if not isinstance(image, Mapping):
            return embed_pixels(self.model, dict(self.processor(images=load_image(image))))[0]
        row = dict(image)
        if self.model.vision is not None and row.get("image") is not None:
            row = {"image": row["image"]}
        return embed_images(self.model, self.processor, [row])[0]
