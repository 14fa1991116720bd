"""Embeddings of images and texts by a dual encoder, of this package or of transformers."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ...data.collator import visual_arguments
from ...guests.dual_encoders import DualEncoder, dual_encoder_of
from ...io.files import write_file_atomically
from ...loading.models import is_guest
from ...models.image_processing_captioning import load_image


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
