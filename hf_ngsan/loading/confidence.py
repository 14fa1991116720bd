"""Confidence in a caption, calibrated from the captioner's own likelihood and a dual encoder's similarity.

The confidence is the probability that a caption agrees with people's captions, by CIDEr-D, at least as well as the
median caption of the images it was calibrated with. It is a logistic regression (Platt 1999) on the mean
log-probability of the caption's tokens and the cosine similarity of image and caption.

An image is unlike the training images if it is less probable among them than 95% of the images of the calibration
split: under a mixture of von Mises-Fisher distributions around clusters of their embeddings (Banerjee et al. 2005).
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from .models import ModelFolderError, find_model_folder, load_model
from .provenance import model_fingerprint

CONFIDENCE = "confidence.json"
CONCENTRATION = 10.0
"""Of the distribution around each cluster, the reciprocal of a variance."""


@dataclass(frozen=True)
class Calibration:
    """The content of `confidence.json`, by which [`Confidence`] judges."""

    dual_encoder: str  # folder, packaged or Hub name
    fingerprint: str  # of its weights and preprocessing
    intercept: float  # coefficients of the logistic regression
    log_probability: float
    similarity: float
    min_familiarity: float  # an image is unlike the training images below this `familiarity`
    median_cider_d: float  # that a caption must reach to count as good
    data: str
    split: str
    num_images: int
    num_beams: int
    auroc: float  # area under the ROC curve of the confidence, by cross-validation
    calibration_error: float  # ECE over ten bins, by cross-validation
    clusters: str  # unit vectors `(clusters, dimension)` of training images, float16, in base64
    shares: list[float]  # of the training images, in each cluster
    shares_vision: bool = True  # whether images are encoded once, by the captioner's vision encoder

    @classmethod
    def load(cls, file: Path) -> "Calibration":
        return cls(**json.loads(file.read_text(encoding="utf-8")))


class Confidence:
    """Judges captions with the calibration of their captioner, and the dual encoder that it names.

    A ModelFolderError says that the captioner is not calibrated, or with another version of the dual encoder.
    """

    def __init__(self, captioner: str | Path, device: torch.device | str = "cpu") -> None:
        file = Path(find_model_folder(captioner), CONFIDENCE)
        if not file.is_file():
            raise ModelFolderError(f"{captioner} has no calibration ({CONFIDENCE}); make it with hf-ngsan calibrate.")
        self.calibration = Calibration.load(file)
        model, processor = load_model(self.calibration.dual_encoder, "retrieval")
        if model_fingerprint(model, processor) != self.calibration.fingerprint:
            raise ModelFolderError(
                f"{captioner} is calibrated with another version of the dual encoder {self.calibration.dual_encoder}; "
                "make the calibration with hf-ngsan calibrate anew."
            )
        placed: Any = model
        self.encoder = dual_encoder_of(placed.to(device), processor)
        clusters = np.frombuffer(base64.b64decode(self.calibration.clusters), np.float16)
        self.clusters = clusters.reshape(-1, self.encoder.dimension).astype(np.float32)

    def judge(
        self, visual: Mapping[str, torch.Tensor], captions: Sequence[str], scores: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Returns `confidence` and `unlike_training` for each caption, those of an image next to each other.

        `visual` has the captioner's `visual_features` `(images, regions, size)` and their `attention_mask` `(images,
        regions)`, or `pixel_values`, where they are needed. `scores` are the likelihoods of the captions.
        """
        images = embed_visual(self.encoder, visual, self.calibration.shares_vision)
        texts = embed_captions(self.encoder, captions)
        of_captions = np.repeat(np.arange(len(images)), len(captions) // len(images))
        similarities = (images[of_captions] * texts).sum(-1)
        weights = self.calibration
        logits = weights.intercept + weights.log_probability * np.asarray(scores) + weights.similarity * similarities
        is_unlike = familiarity(images, self.clusters, self.calibration.shares) < self.calibration.min_familiarity
        return [
            {"confidence": float(value), "unlike_training": bool(is_unlike[image])}
            for value, image in zip(sigmoid(logits), of_captions, strict=True)
        ]


def is_calibrated(model: Any) -> bool:
    """Returns whether a loaded captioner's folder has a calibration."""
    folder = getattr(model, "name_or_path", "")
    return bool(folder) and Path(folder, CONFIDENCE).is_file()


def embed_visual(encoder: DualEncoder, visual: Mapping[str, torch.Tensor], shares_vision: bool) -> np.ndarray:
    """Returns embeddings of images, float32 `(images, dimension)`: of features or, if not shared, of pixels."""
    if shares_vision:
        inputs = {"visual_features": visual["visual_features"], "visual_attention_mask": visual.get("attention_mask")}
    else:
        inputs = {"pixel_values": visual["pixel_values"], "pixel_mask": visual.get("pixel_mask")}
    with torch.inference_mode():
        return encoder.embed_images({name: value for name, value in inputs.items() if value is not None}).cpu().numpy()


def embed_captions(encoder: DualEncoder, captions: Sequence[str]) -> np.ndarray:
    with torch.inference_mode():
        return encoder.embed_texts(encoder.text_inputs(captions)).cpu().numpy()


def familiarity(images: np.ndarray, clusters: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Returns the logarithm of the density of images (unit vectors) among the training images, but for a constant."""
    return np.log(np.exp(CONCENTRATION * (images @ clusters.T)) @ np.asarray(shares))


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -500, 500)))
