"""Embeddings of images and texts by a dual encoder, of this package or of transformers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ...data.collator import visual_arguments
from ...guests.dual_encoders import DualEncoder, dual_encoder_of
from ...loading.models import is_guest


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
