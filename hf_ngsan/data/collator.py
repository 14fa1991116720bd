"""The collator turns rows of a dataset into a batch for a captioner."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .errors import DataError
from .sampler import digest

Row = Mapping[str, Any]
IGNORED_LABEL = -100  # label of a token without target, as in transformers and PyTorch


class CaptionCollator:
    """Makes a batch of rows of the feature contract, with a fixed number of captions for each image.

    The choice of captions depends only on `seed`, the epoch and the row's `image_id`, not on a random state, worker or
    process, so that an epoch can be repeated exactly.

    Can be used as `data_collator` of transformers' `Seq2SeqTrainer` with `remove_unused_columns=False`. For
    `label_smoothing_factor`, pass `model` to the collator.

    Args:
        processor: pads and tokenizes. It is called as `processor(visual_features=[…], visual_boxes=[…], captions=[…])`
            with lists of B arrays `(N, D)`, of B arrays `(N, 4)` or None, and of B lists of C strings or None (for a
            missing caption). For rows without `visual_features`, it is called with `images=[…]`.
        captions_per_image: C. C different captions are drawn from a row with more captions; a row with fewer captions
            gets label rows of -100. None uses all captions; C is then the largest number in the batch.
        max_caption_length: labels are truncated to this number of tokens, including the end token; None: no limit.
        augment: changes a row randomly before it is collated; called with the row and the epoch.
        model: adds `decoder_input_ids` to batches with labels, for losses that are computed outside of the model.
        with_images: False uses only the captions, for language models.
    """

    def __init__(
        self,
        processor: Callable[..., dict],
        *,
        captions_per_image: int | None = 1,
        max_caption_length: int | None = None,
        seed: int = 0,
        augment: Callable[[Row, int], Row] | None = None,
        model: Any = None,
        with_images: bool = True,
    ):
        if any(limit is not None and limit < 1 for limit in (captions_per_image, max_caption_length)):
            raise ValueError("captions_per_image and max_caption_length must be positive, or None.")
        self.processor, self.model = processor, model
        self.captions_per_image, self.max_caption_length = captions_per_image, max_caption_length
        self.augment, self.with_images = augment, with_images
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Collates B rows with captions in `captions` or else in `caption`.

        Returns:
            The output of the processor: `visual_features` `(B, N, D)`, `visual_boxes` `(B, N, 4)` if rows have boxes,
            `attention_mask` `(B, N)`, or `pixel_values` `(B, 3, height, width)`; and `labels` `(B * C, T)`, image by
            image, if a row has captions. With `model`, also `decoder_input_ids` `(B * C, T)`. If rows have
            `caption_weights` (a number for each caption), also these `(B * C,)`. An empty dict for no rows.
        """
        if not rows:
            return {}
        if self.augment is not None:
            rows = [self.augment(row, self.epoch) for row in rows]
        captions = [captions_in_row(row) for row in rows]
        chosen = self.choose_captions(rows, captions)
        batch = self.processor(
            **(visual_arguments(rows) if self.with_images else {}),
            captions=chosen and [values_at(texts, places) for texts, places in zip(captions, chosen, strict=True)],
        )
        if chosen and all(row.get("caption_weights") is not None for row in rows):
            weights = [values_at(row["caption_weights"], places, 0.0) for row, places in zip(rows, chosen, strict=True)]
            batch["caption_weights"] = torch.tensor(weights).flatten()
        if self.max_caption_length is not None and "labels" in batch:
            batch["labels"] = batch["labels"][:, : self.max_caption_length]
        if self.model is not None and "labels" in batch:
            batch["decoder_input_ids"] = self.model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
        return batch

    def choose_captions(self, rows: Sequence[Row], captions: Sequence[Sequence[str]]) -> list[list[int | None]] | None:
        """Returns the indices of C captions of each row, None for missing ones; returns None if no row has captions."""
        numbers = [len(texts) for texts in captions]
        if not any(numbers):
            return None
        each = self.captions_per_image or max(numbers)
        return [self.choose(row, number, each) for row, number in zip(rows, numbers, strict=True)]

    def choose(self, row: Row, number: int, each: int) -> list[int | None]:
        if number <= each:
            return [*range(number), *[None] * (each - number)]
        keys = [digest(self.seed, self.epoch, row.get("image_id"), caption) for caption in range(number)]
        return [*sorted(range(number), key=keys.__getitem__)[:each]]


def captions_in_row(row: Row) -> Sequence[str]:
    captions = row.get("captions") if row.get("captions") is not None else row.get("caption")
    if captions is None:
        return []
    return [captions] if isinstance(captions, str) else captions


def visual_arguments(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the visual arguments of a processor: `visual_features` and `visual_boxes`, `images`, or `videos`."""
    for column in ("frames", "video"):
        if all(row.get("visual_features") is None and row.get(column) is not None for row in rows):
            return {"videos": [row[column] for row in rows]}
    without = [row.get("image_id") for row in rows if row.get("visual_features") is None]
    if without:
        images = [row.get("image") for row in rows]
        if any(image is None for image in images):
            raise DataError(f"The row with image_id {without[0]} has no visual_features, and another row has no image.")
        return {"images": images}
    boxes = [row.get("visual_boxes") for row in rows]
    has_boxes = [box is not None and np.ndim(box) > 0 for box in boxes]  # datasets with Array2D read None as NaN
    if any(has_boxes) and not all(has_boxes):
        missing = rows[has_boxes.index(False)].get("image_id")
        raise DataError(f"The row with image_id {missing} has no visual_boxes, but other rows of the batch have them.")
    features = [np.asarray(row["visual_features"]) for row in rows]
    return {"visual_features": features, "visual_boxes": list(map(np.asarray, boxes)) if all(has_boxes) else None}


def values_at(values: Sequence, places: Sequence[int | None], missing: Any = None) -> list:
    return [missing if place is None else values[place] for place in places]
