"""Confidence in captions from the calibration of the captioner; see [`~hf_ngsan.loading.calibration`]."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from .calibration import CONFIDENCE, read_calibration
from .models import ModelFolderError, load_model
from .provenance import model_fingerprint


class Confidence:
    """Judges captions with the calibration of their captioner and the dual encoder that it names.

    Raises a ModelFolderError if the captioner is not calibrated, or with another version of the dual encoder.
    """

    def __init__(self, captioner: str | Path, device: torch.device | str = "cpu") -> None:
        calibration = read_calibration(captioner)
        if calibration is None:
            raise ModelFolderError(f"{captioner} has no calibration ({CONFIDENCE}); run hf-ngsan calibrate on it.")
        model, processor = load_model(calibration.dual_encoder, "retrieval")
        if model_fingerprint(model, processor) != calibration.fingerprint:
            raise ModelFolderError(
                f"{captioner} was calibrated with another version of the dual encoder {calibration.dual_encoder}; run "
                "hf-ngsan calibrate again."
            )
        placed: Any = model
        self.calibration, self.encoder = calibration, dual_encoder_of(placed.to(device), processor)

    def judge(
        self, pixels: Mapping[str, torch.Tensor], captions: Sequence[str], scores: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Returns `confidence`, `unlike_training` and `doubt` for each caption; captions of an image are next to each
        other. `pixels` are inputs of the captioner, `scores` the mean log-probabilities of the captions."""
        images = image_embeddings(self.encoder, pixels)
        similarities = np.repeat(images, len(captions) // len(images), axis=0) * caption_embeddings(
            self.encoder, captions
        )
        return self.calibration.judge(images, scores, similarities.sum(-1))


def image_embeddings(encoder: DualEncoder, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Returns float32 embeddings `(images, dimension)` from `pixel_values` and, if images are padded, `pixel_mask`."""
    pixels = {name: inputs[name] for name in ("pixel_values", "pixel_mask") if name in inputs}
    with torch.inference_mode():
        return encoder.embed_images(pixels).cpu().numpy()


def caption_embeddings(encoder: DualEncoder, captions: Sequence[str]) -> np.ndarray:
    with torch.inference_mode():
        return encoder.embed_texts(encoder.text_inputs(captions)).cpu().numpy()
