"""Analysis of captioners: visualness of words, counterfactual boxes, and calibration of the confidence."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import draw_scene
from ..data.collator import visual_arguments
from ..data.scenes.relations import MENTION
from ..data.scenes.scoring import relation_swaps, score_swaps
from ..guests.dual_encoders import dual_encoder_of
from ..loading.calibration import SURE, Calibration, familiarity, sigmoid, to_text, weights_of
from ..loading.confidence import caption_embeddings, image_embeddings
from ..loading.models import load_model
from ..loading.provenance import model_fingerprint, vision_provenance
from ..metrics import CiderD
from ..models.attention_maps import word_attention, word_visualness_pairs
from ..models.configuration_hub import check_choice
from ..models.text_scores import text_scores
from ..training.batches import map_sharded, take
from ..visualization import plot_counterfactual, save_figure
from .captioning_generation import generate_captions, greedily


class WordVisualness(NamedTuple):
    """Visualness of a word: mean over its occurrences, in [0, 1], their number, and the standard deviation."""

    word: str
    mean: float
    occurrences: int
    std: float


def captions_with_visualness(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    batch_size: int = 64,
    **generate_arguments: Any,
) -> list[list[tuple[str, float]]]:
    """Captions every row like `generate_captions`; returns the words of each caption with their visualness."""
    captioner = cast(Any, model)

    def caption(indices: range) -> list[list[tuple[str, float]]]:
        inputs = with_features(captioner, processor(**visual_arguments(take(rows, indices))).to(model.device))
        with torch.inference_mode():
            sequences = captioner.generate(**inputs, **generate_arguments)
        return word_visualness_pairs(captioner, processor.tokenizer, inputs, sequences)

    return map_sharded(caption, len(rows), batch_size, accelerator, description="captioning")


def visualness_of_words(captions: Iterable[Iterable[tuple[str, float]]]) -> list[WordVisualness]:
    """Returns the visualness of each word, the most visual word first; equal ones are in alphabetical order."""
    by_word = defaultdict(list)
    for word, value in chain.from_iterable(captions):
        by_word[word].append(value)
    table = [WordVisualness(word, fmean(values), len(values), pstdev(values)) for word, values in by_word.items()]
    return sorted(table, key=lambda entry: (-entry.mean, entry.word))


def change_boxes(boxes: np.ndarray, kind: str, region: int = 0, other: int = 1) -> np.ndarray:
    """Returns boxes `(N, 4)`; one of them is moved right by 0.2, scaled by 2, mirrored or swapped with another."""
    check_choice("change", kind, ("move", "scale", "mirror", "swap"))
    changed, low, high = boxes.copy(), boxes[region, :2], boxes[region, 2:]
    if kind == "move":
        changed[region] += np.tile(np.clip((0.2, 0.0), -low, 1 - high), 2)
    elif kind == "scale":
        centre, half = (low + high) / 2, high - low
        changed[region] = np.clip(np.concatenate([centre - half, centre + half]), 0, 1)
    elif kind == "mirror":
        changed[region, [0, 2]] = 1 - boxes[region, [2, 0]]
    else:
        changed[[region, other]] = boxes[[other, region]]
    return changed


@dataclass(frozen=True)
class Captioned:
    """The caption for boxes `(regions, 4)`, and how the caption for the original boxes is scored with these boxes."""

    caption: str
    log_probability: float  # mean over the tokens of the first caption
    words: list[str]  # words of the first caption
    log_probabilities: list[float]
    attention: list[list[float]]  # (words, regions)
    boxes: list[list[float]]


def explain_counterfactual(
    model: Any,
    processor: Any,
    row: Mapping[str, Any],
    change: str,
    region: int = 0,
    other: int = 1,
    figure: str | Path | None = None,
) -> dict[str, Any]:
    """Returns the effect of a changed box on the caption of a row, as JSON, and draws it into a file.

    The changes are those of [`change_boxes`]; `before` and `after` have the fields of [`Captioned`].
    """
    sides, sequences = [], None
    boxes = np.asarray(row["visual_boxes"], dtype=np.float32)
    if max(region, other if change == "swap" else 0) >= len(boxes):
        raise ValueError(f"The image has {len(boxes)} regions, counted from 0; change one of them.")
    for layout in (boxes, change_boxes(boxes, change, region, other).astype(np.float32)):
        inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[layout]).to(model.device)
        with torch.inference_mode():
            generated = model.generate(**inputs)
        sequences = generated if sequences is None else sequences
        [scores] = text_scores(model, processor.tokenizer, inputs, sequences)
        [(_, attention)] = word_attention(model, processor.tokenizer, inputs, sequences)
        [caption] = processor.tokenizer.batch_decode(generated, skip_special_tokens=True)
        words, values = map(list, zip(*scores.words, strict=True)) if scores.words else ([], [])
        sides.append(Captioned(caption, scores.score, words, values, attention.tolist(), layout.tolist()))
    before, after = sides
    if figure is not None:
        names = list(row.get("objects") or map(str, range(len(boxes))))
        images = [row.get("image") or np.full((240, 320, 3), 245, np.uint8)] * 2
        if all(map(MENTION.fullmatch, names)):  # a synthetic scene
            images = [draw_scene({**row, "visual_boxes": np.asarray(side.boxes)}) for side in sides]
        save_figure(plot_counterfactual(images, before, after, names), figure)
    return {"image_id": int(row["image_id"]), "change": change, "before": asdict(before), "after": asdict(after)}


def score_counterfactuals(model: PreTrainedModel, processor: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Measures how captions of scenes follow the exchange of two boxes: see [`~hf_ngsan.data.scenes.scoring`]."""
    pairs = [(row, swap) for row in rows for swap in relation_swaps(row)]
    prefixes = [swap.prompt.text for _, swap in pairs]
    swapped = [{**row, "visual_boxes": swap.boxes} for row, swap in pairs]
    before, after = (
        generate_captions(model, processor, images, prefixes=prefixes, **greedily(6))
        for images in ([dict(row) for row, _ in pairs], swapped)
    )
    return score_swaps([swap for _, swap in pairs], before, after)


# 16 clusters separated COCO's photographs from Flickr8k's better than 64 or the nearest training image did.
NUM_CLUSTERS, ROUNDS = 16, 20
UNLIKE = 0.05  # share of the calibration split's images that count as unlike the training images
NUM_FOLDS, NUM_BINS = 5, 10
RIDGE = 1e-3  # weight of the squared coefficients, so that they stay finite if a threshold separates the captions


def check_preprocessing(*models: tuple[Any, Any]) -> None:
    """Raises a ValueError unless these models, each with its processor, read images and preprocess them alike."""
    visions: Any = [(getattr(model.base_model, "vision", None), processor) for model, processor in models]
    if any(vision is None for vision, _ in visions):
        raise ValueError("Confidence needs a captioner and a dual encoder with vision encoders (attach-vision).")
    origins = [vision_provenance(vision, processor.image_processor) for vision, processor in visions]
    if len({origin["checksums"]["preprocessing"] for origin in origins}) > 1:
        raise ValueError("The dual encoder must have the same preprocessing of images as the captioner.")


def fit_logistic(inputs: np.ndarray, is_good: np.ndarray) -> np.ndarray:
    """Returns intercept and coefficients of a logistic regression of `is_good` on `(captions, inputs)`, by Newton."""
    mean, scale = inputs.mean(0), np.maximum(inputs.std(0), 1e-12)
    design = np.column_stack([np.ones(len(inputs)), (inputs - mean) / scale])
    penalty = RIDGE * len(inputs) * np.diag([0.0, *np.ones(inputs.shape[1])])
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        probabilities = sigmoid(design @ weights)
        gradient = design.T @ (probabilities - is_good) + penalty @ weights
        curvature = (design * (probabilities * (1 - probabilities))[:, None]).T @ design + penalty
        weights = weights - np.linalg.solve(curvature, gradient)
    coefficients = weights[1:] / scale
    return np.array([weights[0] - coefficients @ mean, *coefficients])


def area_under_curve(values: np.ndarray, is_good: np.ndarray) -> float:
    """Returns the share of pairs of a good and a bad caption that the values order correctly; ties count half."""
    good, bad = values[is_good], np.sort(values[~is_good])
    below, not_above = np.searchsorted(bad, good, "left"), np.searchsorted(bad, good, "right")
    return float((below + not_above).mean() / 2 / max(len(bad), 1))


def expected_calibration_error(probabilities: np.ndarray, is_good: np.ndarray) -> float:
    """Returns the expected calibration error (ECE) over bins of equal size."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), NUM_BINS)
    gaps = [abs(probabilities[part].mean() - is_good[part].mean()) * len(part) for part in parts if len(part)]
    return float(sum(gaps) / len(probabilities))


def clusters_of(embeddings: np.ndarray) -> np.ndarray:
    """Returns the unit centres of spherical k-means (Dhillon and Modha 2001), float32 `(clusters, dimension)`."""
    number = min(NUM_CLUSTERS, len(embeddings))
    centres = embeddings[np.random.default_rng(0).choice(len(embeddings), number, replace=False)]
    for _ in range(ROUNDS):
        nearest = (embeddings @ centres.T).argmax(-1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, embeddings)
        lengths = np.linalg.norm(sums, axis=-1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
    return centres.astype(np.float32)


def fitted(
    log_probabilities: np.ndarray,
    similarities: np.ndarray,
    cider_d: np.ndarray,
    images: np.ndarray,
    training: np.ndarray,
) -> dict[str, Any]:
    """Returns fields of a [`Calibration`] to captions, and to embeddings of their images and of training images."""
    clusters = clusters_of(training).astype(np.float16)
    members = np.bincount((training @ clusters.astype(np.float32).T).argmax(-1), minlength=len(clusters))
    shares = (members / len(training)).tolist()
    familiar = familiarity(images, clusters.astype(np.float32), shares)
    inputs = np.column_stack([log_probabilities, similarities])
    is_good = cider_d >= np.median(cider_d)
    if is_good.all():
        raise ValueError(f"The {len(cider_d)} captions have the same score; calibration needs different ones.")
    held_out = np.empty(len(cider_d))
    for part in np.array_split(np.random.default_rng(0).permutation(len(cider_d)), NUM_FOLDS):
        rest = np.setdiff1d(np.arange(len(cider_d)), part)
        intercept, *coefficients = fit_logistic(inputs[rest], is_good[rest])
        held_out[part] = sigmoid(intercept + inputs[part] @ np.array(coefficients))
    unlike = familiar < (least_familiar := float(np.quantile(familiar, UNLIKE)))
    number = max(int(0.2 * is_good.sum() - (is_good & unlike).sum()), 0)  # number of right captions that get a warning
    auroc, doubt_below = area_under_curve(held_out, is_good), min(np.sort(held_out[is_good & ~unlike])[number], SURE)
    if auroc <= 0.5:  # no better than chance
        doubt_below = 0.0
    regression = map(float, fit_logistic(inputs, is_good))
    return {
        **dict(zip(("intercept", "log_probability", "similarity"), regression, strict=True)),
        "auroc": auroc,
        "calibration_error": expected_calibration_error(held_out, is_good),
        "min_familiarity": least_familiar,
        "clusters": to_text(clusters),
        "shares": shares,
        "doubt_below": float(doubt_below),
        "doubted": float((held_out < np.where(unlike, SURE, doubt_below))[~is_good].mean()),
    }


def calibrate(
    captioner: Any,
    processor: Any,
    dual_encoder: str,
    rows: Sequence[Dataset],
    training_rows: Sequence[Dataset],
    *,
    data: Sequence[str],
    split: str,
    num_beams: int | None = None,
    batch_size: int = 64,
) -> Calibration:
    """Calibrates the confidence of a captioner with datasets that it was not trained on, and its training images."""
    if not all(map(len, training_rows)):
        empty = next(spec for spec, spec_rows in zip(data, training_rows, strict=True) if not len(spec_rows))
        raise ValueError(f"{empty} has no training images; give their split with --train-split.")
    if (number := sum(map(len, rows))) < (least := NUM_FOLDS * NUM_BINS):
        raise ValueError(f"{number} photographs are too few for a calibration; {least} are needed in {split}.")
    model, its_processor = load_model(dual_encoder, "retrieval")
    check_preprocessing((captioner, processor), (model, its_processor))
    encoder = dual_encoder_of(model.to(captioner.device), its_processor)
    beams = num_beams or captioner.generation_config.num_beams or 1

    def read(dataset: Dataset, indices: range) -> dict[str, torch.Tensor]:
        return dict(processor(**visual_arguments(take(dataset, indices))).to(captioner.device))

    def embed(dataset: Dataset, indices: range) -> list[np.ndarray]:
        return list(image_embeddings(encoder, read(dataset, indices)))

    def caption(dataset: Dataset, indices: range) -> list[tuple[str, float, float, np.ndarray]]:
        batch = read(dataset, indices)
        images, inputs = image_embeddings(encoder, batch), with_features(captioner, batch)
        with torch.inference_mode():
            sequences = captioner.generate(**inputs, num_beams=beams)
        texts = [text.strip() for text in processor.batch_decode(sequences, skip_special_tokens=True)]
        scores = [text_score.score for text_score in text_scores(captioner, processor.tokenizer, inputs, sequences)]
        similarities = (images * caption_embeddings(encoder, texts)).sum(-1).tolist()
        return list(zip(texts, scores, similarities, images, strict=True))

    def each(function: Any, datasets: Sequence[Dataset], description: str) -> Iterable[Any]:
        parts = (map_sharded(partial(function, part), len(part), batch_size, None, description) for part in datasets)
        return chain.from_iterable(parts)

    captions, scores, similarities, images = zip(*each(caption, rows, "captioning"), strict=True)
    references = [references for dataset in rows for references in dataset["captions"]]
    quality: Any = CiderD().compute(predictions=list(captions), references=references, per_image=True)
    cider_d = np.array(quality["per_image"]["cider_d"])
    training = np.stack(list(each(embed, training_rows, "embedding")))
    return Calibration(
        **fitted(np.array(scores), np.array(similarities), cider_d, np.stack(images), training),
        captioner=weights_of(Path(captioner.name_or_path), {}),
        dual_encoder=str(dual_encoder),
        fingerprint=model_fingerprint(model, its_processor),
        median_cider_d=float(np.median(cider_d)),
        data=list(data),
        split=split,
        num_images=len(cider_d),
        num_beams=beams,
    )


def with_features(captioner: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns inputs of `generate()` with visual features in place of pixels."""
    if "pixel_values" not in inputs:
        return inputs
    names = ("pixel_values", "pixel_mask", "visual_boxes", "attention_mask")
    visual = {name: inputs[name] for name in names if name in inputs}
    with torch.inference_mode():
        tokens = dict(captioner.model.get_visual_tokens(**visual))
    return {name: value for name, value in inputs.items() if name not in visual} | tokens
