"""How sure a captioner may be of a caption: its own likelihood and a dual encoder's similarity, calibrated.

    confidence = Confidence.load("ngsan-flickr8k")
    confidence.judge(visual_inputs, captions, scores)  # [Judgement(0.71, unlike_training=False), ...]

The confidence is the probability that a caption agrees with people's captions, by CIDEr-D, at least as well as the
median caption of the images it was calibrated with. It is a logistic regression (Platt 1999) on the mean
log-probability of the caption's tokens and the cosine similarity of image and caption.

An image is unlike the training images if it is less similar to the nearest of their clusters than nearly all images of
the calibration split.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset

from ...data.collator import visual_arguments
from ...ground.files import write_text_atomically
from ...guests.dual_encoders import dual_encoder_of
from ...loading.models import ModelFolderError, find_model_folder, load_model
from ...loading.provenance import provenance_difference, vision_provenance
from ...metrics import CiderD
from ...models.pipeline_image_to_text import VISUAL_INPUTS
from ...models.text_scores import text_scores
from ...store.fields import FieldError, read_fields, read_json
from ...training.batches import take
from ...training.gathering import map_sharded
from ..retrieval.encoders import embed_texts
from ..retrieval.index import model_fingerprint

CONFIDENCE = "confidence.json"
NUM_CLUSTERS, ROUNDS = 64, 20
"""Clusters of the training images, and rounds of k-means."""
UNLIKE = 0.05
"""Share of the calibration split's images that count as unlike the training images."""
NUM_FOLDS, NUM_BINS = 5, 10
RIDGE = 1e-3
"""Weight of the squared coefficients, which keeps them finite where a threshold separates the captions."""


class Judgement(NamedTuple):
    """How far a caption and its image can be trusted.

    Attributes:
        confidence: probability that the caption is as good as the better half of those it was calibrated with.
        unlike_training: whether the image is unlike the captioner's training images.
    """

    confidence: float
    unlike_training: bool


@dataclass(frozen=True)
class Calibration:
    """What [`Confidence`] knows, the content of `confidence.json`.

    Attributes:
        dual_encoder: folder, packaged or Hub name of the dual encoder.
        fingerprint: of its weights and preprocessing.
        intercept, log_probability, similarity: coefficients of the logistic regression.
        min_similarity: an image is unlike the training images below this similarity to the nearest cluster.
        median_cider_d: CIDEr-D that a caption must reach to count as good.
        data, split, num_images, num_beams: what the calibration was made with.
        auroc: area under the ROC curve of the confidence, by cross-validation.
        calibration_error: mean difference of confidence and share of good captions over ten bins (ECE), by
            cross-validation.
        clusters: unit vectors `(64, dimension)` of training images, float16, in base64.
    """

    dual_encoder: str
    fingerprint: str
    intercept: float
    log_probability: float
    similarity: float
    min_similarity: float
    median_cider_d: float
    data: str
    split: str
    num_images: int
    num_beams: int
    auroc: float
    calibration_error: float
    clusters: str

    @classmethod
    def load(cls, file: Path) -> "Calibration":
        """Reads a calibration; raises a FieldError that names the field at fault."""
        found = read_fields(cls, read_json(file))
        numbers = [value for value in asdict(found).values() if isinstance(value, float)]
        if not np.isfinite(numbers).all():
            raise FieldError("a number that is not finite")
        return found

    def probabilities(self, log_probabilities: np.ndarray, similarities: np.ndarray) -> np.ndarray:
        return sigmoid(self.intercept + self.log_probability * log_probabilities + self.similarity * similarities)

    def centres(self, dimension: int) -> np.ndarray:
        """Returns the clusters, float32 `(clusters, dimension)`; raises a FieldError if they are no such vectors."""
        try:
            found = np.frombuffer(base64.b64decode(self.clusters, validate=True), np.float16).reshape(-1, dimension)
        except ValueError:
            raise FieldError("clusters") from None
        if not len(found) or not np.isfinite(found).all():
            raise FieldError("clusters")
        return found.astype(np.float32)


class Confidence:
    """Judges captions with the calibration of their captioner.

    Args:
        calibration: see there.
        dual_encoder, processor: the dual encoder of the calibration, in evaluation mode, and its processor.

    Raises:
        FieldError: the clusters of the calibration do not fit the dual encoder.
    """

    def __init__(self, calibration: Calibration, dual_encoder: Any, processor: Any) -> None:
        self.calibration, self.dual_encoder, self.processor = calibration, dual_encoder, processor
        self.encoder = dual_encoder_of(dual_encoder, processor)
        self.clusters = calibration.centres(self.encoder.dimension)

    @classmethod
    def load(cls, captioner: str | Path, device: torch.device | str = "cpu") -> "Confidence":
        """Loads the calibration of a captioner, and its dual encoder.

        Raises:
            ModelFolderError: the captioner has no calibration, a damaged one, or one for another dual encoder.
            FileNotFoundError: there is no such dual encoder.
            MissingBackboneError: the package with weights of the dual encoder is not installed.
        """
        file, again = Path(find_model_folder(captioner), CONFIDENCE), "make it with hf-ngsan calibrate"
        if not file.is_file():
            raise ModelFolderError(f"{captioner} has no calibration ({CONFIDENCE}), which confidence needs; {again}.")
        try:
            calibration = Calibration.load(file)
            model, processor = load_model(calibration.dual_encoder, "retrieval")
            if model_fingerprint(model, processor) != calibration.fingerprint:
                raise ModelFolderError(
                    f"{captioner} is calibrated with another version of the dual encoder {calibration.dual_encoder}; "
                    f"{again} anew."
                )
            placed: Any = model
            return cls(calibration, placed.to(device), processor)
        except FieldError as error:
            raise ModelFolderError(f"{file} is damaged ({error}); {again} anew.") from None

    def judge(
        self, visual: Mapping[str, torch.Tensor], captions: Sequence[str], scores: Sequence[float]
    ) -> list[Judgement]:
        """Returns a judgement for each caption.

        Args:
            visual: `visual_features` `(images, regions, size)` of the captioner's vision encoder, and their
                `attention_mask` `(images, regions)`.
            captions: C an image, those of one image next to each other.
            scores: mean log-probability of the tokens of each.
        """
        images = embed_visual(self.encoder, visual)
        texts = embed_texts(self.dual_encoder, self.processor, captions)
        of_captions = np.repeat(np.arange(len(images)), len(captions) // len(images))
        similarities = (images[of_captions] * texts).sum(-1)
        confidences = self.calibration.probabilities(np.asarray(scores), similarities)
        is_unlike = self.familiarity(images) < self.calibration.min_similarity
        return [
            Judgement(float(value), bool(is_unlike[image]))
            for value, image in zip(confidences, of_captions, strict=True)
        ]

    def familiarity(self, images: np.ndarray) -> np.ndarray:
        """Returns the similarity of each image to the nearest cluster of training images."""
        return (images @ self.clusters.T).max(-1)


def is_calibrated(model: Any) -> bool:
    """Returns whether a loaded captioner's folder has a calibration."""
    return Path(str(getattr(model, "name_or_path", "")), CONFIDENCE).is_file()


def embed_visual(encoder: Any, visual: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Returns embeddings of visual features, float32 `(images, dimension)`."""
    inputs = {"visual_features": visual["visual_features"], "visual_attention_mask": visual.get("attention_mask")}
    with torch.inference_mode():
        found = encoder.embed_images({name: value for name, value in inputs.items() if value is not None})
    return found.cpu().numpy()


def check_same_vision(captioner: Any, processor: Any, dual_encoder: Any, its_processor: Any) -> None:
    """Raises a ValueError unless captioner and dual encoder see images in the same way, with a vision encoder each."""
    seen = []
    for model, its in ((captioner, processor), (dual_encoder, its_processor)):
        vision = getattr(model.base_model, "vision", None)
        if vision is None:
            raise ValueError(
                "Confidence needs a captioner and a dual encoder that read images; attach-vision adds that."
            )
        seen.append(vision_provenance(vision, its.image_processor))
    difference = provenance_difference(*seen)
    if difference is not None:
        raise ValueError(
            f"The dual encoder has {difference} than the captioner, which confidence shares its features with; give "
            "one with the captioner's vision encoder and image size."
        )


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -500, 500)))


def fit_logistic(inputs: np.ndarray, is_good: np.ndarray) -> np.ndarray:
    """Returns intercept and coefficients of a logistic regression, by Newton's method.

    Args:
        inputs: `(captions, inputs)`.
        is_good: bool `(captions,)`.
    """
    mean, scale = inputs.mean(0), np.maximum(inputs.std(0), 1e-12)
    design = np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale])
    penalty = RIDGE * len(inputs) * np.diag([0.0, *np.ones(inputs.shape[1])])
    found = np.zeros(design.shape[1])
    for _ in range(25):
        probabilities = sigmoid(design @ found)
        gradient = design.T @ (probabilities - is_good) + penalty @ found
        curvature = (design * (probabilities * (1 - probabilities))[:, None]).T @ design + penalty
        found = found - np.linalg.solve(curvature, gradient)
    coefficients = found[1:] / scale
    return np.array([found[0] - coefficients @ mean, *coefficients])


def area_under_curve(values: np.ndarray, is_good: np.ndarray) -> float:
    """Returns the share of pairs of a good and a bad caption that the values order rightly; ties count half."""
    good, bad = values[is_good], np.sort(values[~is_good])
    below, not_above = np.searchsorted(bad, good, "left"), np.searchsorted(bad, good, "right")
    return float((below + not_above).mean() / 2 / max(len(bad), 1))


def expected_calibration_error(probabilities: np.ndarray, is_good: np.ndarray) -> float:
    """Returns the mean difference of probability and share of good captions over bins of equal size (ECE)."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), NUM_BINS)
    gaps = [abs(probabilities[part].mean() - is_good[part].mean()) * len(part) for part in parts if len(part)]
    return float(sum(gaps) / len(probabilities))


def clusters_of(embeddings: np.ndarray, number: int = NUM_CLUSTERS, seed: int = 0) -> np.ndarray:
    """Returns the unit centres of spherical k-means (Dhillon and Modha 2001), float32 `(clusters, dimension)`."""
    generator = np.random.default_rng(seed)
    centres = embeddings[generator.choice(len(embeddings), min(number, len(embeddings)), replace=False)]
    for _ in range(ROUNDS):
        nearest = (embeddings @ centres.T).argmax(-1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, embeddings)
        lengths = np.linalg.norm(sums, axis=-1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
    return centres.astype(np.float32)


def in_base64(clusters: np.ndarray) -> str:
    return base64.b64encode(clusters.tobytes()).decode()


def fitted(
    log_probabilities: np.ndarray, similarities: np.ndarray, cider_d: np.ndarray, seed: int = 0
) -> dict[str, float]:
    """Fits the regression; returns its fields of a [`Calibration`], scores by cross-validation among them.

    Args:
        log_probabilities, similarities: `(captions,)`.
        cider_d: of each caption, against its image's references.

    Raises:
        ValueError: too few captions, or all of them equally good.
    """
    inputs, median = np.column_stack([log_probabilities, similarities]), float(np.median(cider_d))
    is_good = cider_d >= median
    if len(cider_d) < NUM_FOLDS * NUM_BINS or is_good.all():
        raise ValueError(
            f"There are {len(cider_d)} captions, of which {int(is_good.sum())} count as good; calibration needs at "
            f"least {NUM_FOLDS * NUM_BINS}, of different scores."
        )
    held_out = np.empty(len(cider_d))
    for part in np.array_split(np.random.default_rng(seed).permutation(len(cider_d)), NUM_FOLDS):
        rest = np.setdiff1d(np.arange(len(cider_d)), part)
        intercept, *coefficients = fit_logistic(inputs[rest], is_good[rest])
        held_out[part] = sigmoid(intercept + inputs[part] @ np.array(coefficients))
    intercept, log_probability, similarity = map(float, fit_logistic(inputs, is_good))
    return {
        "intercept": intercept,
        "log_probability": log_probability,
        "similarity": similarity,
        "median_cider_d": median,
        "auroc": area_under_curve(held_out, is_good),
        "calibration_error": expected_calibration_error(held_out, is_good),
    }


def calibrate(
    captioner: Any,
    processor: Any,
    dual_encoder: str,
    rows: Dataset,
    training_rows: Dataset,
    *,
    data: str,
    split: str,
    num_beams: int | None = None,
    batch_size: int = 64,
) -> Calibration:
    """Calibrates a captioner's confidence.

    Args:
        captioner, processor: a captioner that reads images, in evaluation mode, and its processor.
        dual_encoder: folder, packaged or Hub name of a dual encoder with the same vision encoder.
        rows: images or visual features with captions that the captioner was not trained with.
        training_rows: images or visual features of its training.
        data, split: names of `rows`, to record.
        num_beams: of the captions; the captioner's own if `None`.
        batch_size: images at once.

    Raises:
        ValueError: the two models see images in other ways, or there are too few captions.
    """
    model, its_processor = load_model(dual_encoder, "retrieval")
    check_same_vision(captioner, processor, model, its_processor)
    encoder = dual_encoder_of(model.to(captioner.device), its_processor)
    beams = num_beams or captioner.generation_config.num_beams or 1

    def caption(indices: range) -> list[tuple[str, float, float]]:
        inputs = seen_inputs(captioner, processor, take(rows, indices))
        with torch.inference_mode():
            sequences = captioner.generate(**inputs, num_beams=beams)
        texts = [text.strip() for text in processor.batch_decode(sequences, skip_special_tokens=True)]
        scores = [of_text.score for of_text in text_scores(captioner, processor.tokenizer, inputs, sequences)]
        similarities = (embed_visual(encoder, inputs) * embed_texts(model, its_processor, texts)).sum(-1).tolist()
        return list(zip(texts, scores, similarities, strict=True))

    def embed(some_rows: Dataset) -> np.ndarray:
        def embed_part(indices: range) -> list[np.ndarray]:
            return list(embed_visual(encoder, seen_inputs(captioner, processor, take(some_rows, indices))))

        return np.stack(map_sharded(embed_part, len(some_rows), batch_size, description="embedding"))

    captions, scores, similarities = zip(
        *map_sharded(caption, len(rows), batch_size, description="captioning"), strict=True
    )
    found: Any = CiderD().compute(predictions=list(captions), references=list(rows["captions"]), per_image=True)
    facts = fitted(np.array(scores), np.array(similarities), np.array(found["per_image"]["cider_d"]))
    clusters = clusters_of(embed(training_rows)).astype(np.float16)
    nearest = (embed(rows) @ clusters.astype(np.float32).T).max(-1)
    return Calibration(
        dual_encoder=str(dual_encoder),
        fingerprint=model_fingerprint(model, its_processor),
        min_similarity=float(np.quantile(nearest, UNLIKE)),
        data=data,
        split=split,
        num_images=len(rows),
        num_beams=beams,
        clusters=in_base64(clusters),
        **facts,
    )


def seen_inputs(captioner: Any, processor: Any, batch: Sequence[dict]) -> dict[str, torch.Tensor]:
    """Returns the inputs of `generate()` for some rows, with visual features in place of pixels."""
    inputs = dict(processor(**visual_arguments(batch)).to(captioner.device))
    if "pixel_values" not in inputs:
        return inputs
    visual = {name: inputs.pop(name) for name in VISUAL_INPUTS if name in inputs}
    with torch.inference_mode():
        return inputs | dict(captioner.model.get_visual_tokens(**visual))


def write_calibration(folder: str | Path, calibration: Calibration) -> None:
    """Writes `confidence.json` into a captioner's folder."""
    write_text_atomically(Path(folder) / CONFIDENCE, json.dumps(asdict(calibration), indent=2) + "\n")
