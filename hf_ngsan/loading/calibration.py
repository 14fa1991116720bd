"""The calibration files that `hf-ngsan calibrate` writes into the folder of a model; reading them needs no torch.

The confidence in a caption is the probability that its CIDEr-D against human captions is at least that of the median
caption of the calibration images. It is a logistic regression (Platt 1999) on the mean log-probability of the caption's
tokens and the cosine similarity of image and caption by a dual encoder.

The familiarity of an image is its log-density under a mixture of von Mises-Fisher distributions around clusters of the
training images' embeddings (Banerjee et al. 2005). An image is unlike the training images if it is less familiar than
95% of the images of the calibration split; its caption then gets a warning below a confidence of one half. The
embeddings come from the dual encoder.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..io.files import sha256, write_text_atomically
from ..io.packaged import find_model_folder

CONFIDENCE, SEARCH = "confidence.json", "search.json"
SURE = 0.5  # confidence from which the caption of an image unlike the training images gets no warning
CONCENTRATION = 10.0
"""Concentration of the distribution around each cluster: the reciprocal of a variance."""


@dataclass(frozen=True)
class Calibration:
    """The content of `confidence.json` of a captioner: a logistic regression, and the density of training images."""

    intercept: float  # coefficients of the regression
    log_probability: float
    similarity: float  # coefficient of the similarity
    auroc: float  # area under the ROC curve of the confidence, by cross-validation
    calibration_error: float  # ECE over ten bins, by cross-validation
    min_familiarity: float  # an image with less is unlike the training images
    clusters: str  # unit vectors `(clusters, dimension)` of training images, float16, in base64
    shares: list[float]  # share of the training images in each cluster
    doubt_below: float  # confidence below which a caption gets a warning
    doubted: float  # share of the wrong captions with a warning, by cross-validation
    captioner: dict[str, str]  # checksums of the captioner's files of weights
    dual_encoder: str  # folder, packaged name or Hub name
    fingerprint: str  # fingerprint of the dual encoder's weights and preprocessing
    median_cider_d: float  # CIDEr-D from which a caption counts as good
    data: list[str]
    split: str
    num_images: int
    num_beams: int

    def judge(self, images: np.ndarray, scores: Sequence[float], similarities: np.ndarray) -> list[dict[str, Any]]:
        """Returns `confidence`, `unlike_training` and `doubt` of captions; captions of an image are next to each other.

        `doubt` is a short warning for a doubtful caption, None for other captions. Needs embeddings of images `(images,
        dimension)`, the mean log-probabilities of captions, and their similarities to the images.
        """
        familiar = familiarity(images, from_text(self.clusters).reshape(-1, images.shape[1]), self.shares)
        image_indices = np.repeat(np.arange(len(images)), len(scores) // len(images))
        logits = self.log_probability * np.asarray(scores) + self.similarity * similarities
        values = sigmoid(self.intercept + logits)
        is_unlike = (familiar < self.min_familiarity)[image_indices]
        return [
            {"confidence": value, "unlike_training": unlike, "doubt": self.doubt(value, unlike)}
            for value, unlike in zip(values.tolist(), is_unlike.tolist(), strict=True)
        ]

    def doubt(self, confidence: float, unlike: bool) -> str | None:
        if confidence >= (SURE if unlike else self.doubt_below):
            return None
        words = "probably wrong" if confidence < self.doubt_below else "perhaps wrong"
        return f"{words} ({confidence:.0%})" + (": unlike the training photographs" if unlike else "")


@dataclass(frozen=True)
class SearchCalibration:
    """The content of `search.json` of a dual encoder."""

    min_similarity: float  # an image with a lower similarity does not match a text
    missed: float  # share of images with a lower similarity to their captions
    mistaken: float  # share of collections without the image of a caption in which another image matches
    data: list[str]
    split: str
    num_images: int

    def missing(self, best: float) -> str | None:
        """Returns a message if the most similar image does not match; None if it does."""
        if best >= self.min_similarity:
            return None
        return f"No image matches: the best similarity is {best:.2f}; a match needs {self.min_similarity:.2f}."


def read_calibration(model: str | Path, checksums: Mapping[str, str] | None = None) -> Calibration | None:
    """Returns the calibration of a captioner, or None. Raises a ValueError for one of other weights.

    `checksums` are those of its files, if they are known."""
    content = read_model_file(model, CONFIDENCE)
    if content is None:
        return None
    folder, known = Path(find_model_folder(model)), {field.name for field in fields(Calibration)}
    if content.keys() != known or content["captioner"] != weights_of(folder, checksums or {}):
        reason = f"{folder / CONFIDENCE} is for other weights or another version of hf-ngsan"
        raise ValueError(f"{reason}; run hf-ngsan calibrate --model {model} again")
    return Calibration(**content)


def weights_of(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    return {file.name: known.get(file.name) or sha256(file) for file in sorted(folder.glob("[!.]*.safetensors"))}


def read_search_calibration(model: str | Path) -> SearchCalibration | None:
    """Returns the calibration of a dual encoder; None if there is none."""
    content = read_model_file(model, SEARCH)
    return None if content is None else SearchCalibration(**content)


def read_model_file(model: str | Path, name: str) -> dict[str, Any] | None:
    file = Path(find_model_folder(model), name) if model else None
    return json.loads(file.read_text(encoding="utf-8")) if file and file.is_file() else None


def is_calibrated(model: Any) -> bool:
    """Returns whether a loaded captioner's folder has a calibration."""
    folder = getattr(model, "name_or_path", "")
    return bool(folder) and Path(folder, CONFIDENCE).is_file()


def write_calibration(folder: str | Path, calibration: Calibration | SearchCalibration) -> None:
    """Writes the calibration of a model into its folder."""
    name = CONFIDENCE if isinstance(calibration, Calibration) else SEARCH
    write_text_atomically(Path(folder) / name, json.dumps(asdict(calibration), indent=2) + "\n")


def familiarity(images: np.ndarray, clusters: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Returns the log-density of unit vectors among the training images, up to a constant."""
    return np.log(np.exp(CONCENTRATION * (images @ clusters.T)) @ np.asarray(shares))


def to_text(array: np.ndarray) -> str:
    return base64.b64encode(array.astype(np.float16).tobytes()).decode()


def from_text(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.float16).astype(np.float32)


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -500, 500)))
