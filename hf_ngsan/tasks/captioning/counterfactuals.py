"""Counterfactuals of geometry: a box of an image changes, its features stay, and a captioner captions both.

```python
explain_change(model, processor, row, swap_boxes(row["visual_boxes"], 0, 1)).after.caption
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ...data import DataError
from ...data.scenes.scoring import relation_swaps, score_swaps
from ...models.text_scores import text_scores
from ...visualization import word_attention
from .generate import caption_batch

SEED = 0
"""Seed of the regions of photographs that are exchanged."""


def move_box(boxes: np.ndarray, region: int, offset: tuple[float, float]) -> np.ndarray:
    """Returns boxes `(N, 4)` with one moved by shares of the image, at most to its edge."""
    changed = boxes.copy()
    low, high = -boxes[region, :2], 1 - boxes[region, 2:]
    changed[region] += np.tile(np.clip(offset, low, high), 2)
    return changed


def scale_box(boxes: np.ndarray, region: int, factor: float) -> np.ndarray:
    """Returns boxes with one scaled around its centre and clipped to the image."""
    changed = boxes.copy()
    centre, half = (boxes[region, :2] + boxes[region, 2:]) / 2, (boxes[region, 2:] - boxes[region, :2]) / 2 * factor
    changed[region] = np.clip(np.concatenate([centre - half, centre + half]), 0, 1)
    return changed


def mirror_box(boxes: np.ndarray, region: int) -> np.ndarray:
    """Returns boxes with one mirrored: left and right are exchanged."""
    changed = boxes.copy()
    changed[region, [0, 2]] = 1 - boxes[region, [2, 0]]
    return changed


def swap_boxes(boxes: np.ndarray, region: int, other: int) -> np.ndarray:
    """Returns boxes with those of two regions exchanged."""
    changed = boxes.copy()
    changed[[region, other]] = boxes[[other, region]]
    return changed


@dataclass(frozen=True)
class Captioned:
    """A caption for boxes.

    Attributes:
        caption: the caption.
        log_probability: mean over the tokens of the first caption, given these boxes.
        words: the words of the first caption.
        log_probabilities: log-probabilities of these words, given these boxes.
        attention: attention of these words, `(words, regions)`.
        boxes: the boxes, `(regions, 4)`.
    """

    caption: str
    log_probability: float
    words: list[str]
    log_probabilities: list[float]
    attention: list[list[float]]
    boxes: list[list[float]]


@dataclass(frozen=True)
class Counterfactual:
    """An image's caption before and after a change of its boxes."""

    before: Captioned
    after: Captioned

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain_change(model: Any, processor: Any, row: Mapping[str, Any], boxes: np.ndarray) -> Counterfactual:
    """Captions a row with its own boxes and with others, and follows its own caption through both.

    Args:
        model: a captioner of this package, in evaluation mode.
        processor: the model's.
        row: `visual_features` `(N, D)` and `visual_boxes` `(N, 4)`.
        boxes: the other boxes.
    """
    found, sequences = [], None
    for of_image in (np.asarray(row["visual_boxes"], dtype=np.float32), boxes.astype(np.float32)):
        arguments = {"visual_features": [row["visual_features"]], "visual_boxes": [of_image]}
        inputs = processor(**arguments).to(model.device)
        with torch.inference_mode():
            generated = model.generate(**inputs)
        sequences = generated if sequences is None else sequences
        [scores] = text_scores(model, processor.tokenizer, inputs, sequences)
        [attention] = word_attention(model, processor.tokenizer, inputs, sequences)
        [caption] = processor.tokenizer.batch_decode(generated, skip_special_tokens=True)
        words, log_probabilities = zip(*scores.words, strict=True) if scores.words else ((), ())
        weights = attention.weights.tolist()
        of_words = list(words), list(log_probabilities)
        found.append(Captioned(caption, scores.score, *of_words, weights, of_image.tolist()))
    return Counterfactual(*found)


def score_counterfactuals(
    model: PreTrainedModel, processor: Any, rows: Sequence[Mapping[str, Any]], batch_size: int = 64
) -> dict[str, Any]:
    """Measures how captions follow the exchange of two boxes.

    Args:
        model, processor: a captioner and its processor.
        rows: rows with features and boxes; those of synthetic scenes have `objects` and their captions.
        batch_size: images captioned together.

    Returns:
        For scenes, the groups of [`~hf_ngsan.data.scenes.scoring.score_swaps`]. For other images `images` with
        two regions or more, and the share whose caption `changed` when two regions, drawn at random, exchange boxes.

    Raises:
        DataError: no row can be changed.
    """

    def captions(images: list, prefixes: list[str] | None = None, **options: Any) -> list[str]:
        found: list[str] = []
        for start in range(0, len(images), batch_size):
            part = slice(start, start + batch_size)
            own = None if prefixes is None else prefixes[part]
            found += caption_batch(model, processor, images[part], own, **options)
        return found

    if rows and "objects" in rows[0] and is_scene(rows[0]):
        pairs = [(row, swap) for row in rows for swap in relation_swaps(row)]
        prompts = [swap.prompt.text for _, swap in pairs]
        greedy: dict[str, Any] = {"num_beams": 1, "length_penalty": None, "max_new_tokens": 6}
        before = captions([row for row, _ in pairs], prompts, **greedy)
        after = captions([{**row, "visual_boxes": swap.boxes} for row, swap in pairs], prompts, **greedy)
        return score_swaps([swap for _, swap in pairs], before, after)
    random, several, changed = np.random.default_rng(SEED), [], []
    for row in rows:
        boxes = np.asarray(row["visual_boxes"], dtype=np.float32)
        if len(boxes) > 1:
            region, other = random.choice(len(boxes), size=2, replace=False)
            several.append(row)
            changed.append({**row, "visual_boxes": swap_boxes(boxes, int(region), int(other))})
    if not several:
        raise DataError("No image has two regions whose boxes could be exchanged.")
    texts = zip(captions(several), captions(changed), strict=True)
    return {"images": len(several), "changed": float(np.mean([first != second for first, second in texts]))}


def is_scene(row: Mapping[str, Any]) -> bool:
    """Returns whether a row is one of the synthetic scenes; COCO layouts have names of objects too."""
    try:
        relation_swaps(row)
    except DataError:
        return False
    return True
