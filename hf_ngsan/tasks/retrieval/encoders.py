"""Dual encoders of this package and of transformers behind the same few methods."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedModel

from ...data.collator import visual_arguments
from ...data.vocabulary import with_words
from ...guests.dual_encoders import DualEncoder, dual_encoder_of
from ...loading.models import is_guest
from ...models.images import load_image


class OwnDualEncoder(DualEncoder):
    """A dual encoder of this package, whose features have the length 1; it may take visual features of images."""

    @property
    def image_processor(self) -> Any:
        return None if self.model.vision is None else self.processor.image_processor

    @property
    def dimension(self) -> int:
        return self.model.config.projection_dim

    def image_inputs(self, images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        return dict(self.processor(images=list(images)))

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        return dict(self.processor(text=with_words(self.processor.tokenizer, texts), truncation=True))

    def embedded(self, features_of: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return features_of(
            **{name: value.to(self.model.device) for name, value in inputs.items()}
        ).pooler_output.float()


def encoder_of(model: PreTrainedModel, processor: Any) -> DualEncoder:
    """Returns a dual encoder with its processor, of this package or of transformers."""
    return dual_encoder_of(model, processor) if is_guest(model.config) else OwnDualEncoder(model, processor)


def embed_images(model: PreTrainedModel, processor: Any, rows: Sequence[dict]) -> np.ndarray:
    """Returns the embeddings of rows with images or visual features, float32 `(rows, dimension)`."""
    encoder, given = encoder_of(model, processor), visual_arguments(rows)
    if is_guest(model.config):
        return embed_pixels(encoder, encoder.image_inputs([load_image(image) for image in given["images"]]))
    return embed_pixels(encoder, processor(**given))


def embed_pixels(encoder: DualEncoder, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Returns the embeddings of images with their inputs, float32 `(images, dimension)`."""
    with torch.inference_mode():
        return encoder.embed_images(inputs).cpu().numpy()


def embed_texts(model: PreTrainedModel, processor: Any, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
    """Returns the embeddings of texts, float32 `(texts, dimension)`; those that are too long are cut."""
    encoder, parts = encoder_of(model, processor), []
    for start in range(0, len(texts), batch_size):
        with torch.inference_mode():
            parts.append(encoder.embed_texts(encoder.text_inputs(texts[start : start + batch_size])).cpu().numpy())
    return np.concatenate(parts)
