"""Rows of a data set -> a batch for a captioner."""

import hashlib

import numpy as np
import torch

from .errors import DataError


class CaptionCollator:
    """Makes a batch of rows of the feature contract, with a fixed number of captions for each image.

    Which captions a row lends depends on `seed`, the epoch and the row's `image_id` alone, not on any random state,
    worker or process, so that an epoch can be repeated exactly.

    Args:
        processor: pads and tokenizes; called as `processor(visual_features=[…], visual_boxes=[…], captions=[…])` with
            lists of B arrays `(N, D)`, of B arrays `(N, 4)` or None, and of B lists of C strings or None. None in the
            place of a string stands for a caption that a row does not have. For rows without `visual_features` it is
            called with `images=[…]` in place of features and boxes.
        captions_per_image: C. Of rows with more captions, C different ones are chosen; rows with fewer give label rows
            of -100 only. None takes every caption of every row, C being the largest number in the batch.
        max_caption_length: labels are cut to this number of tokens, the end token included; None leaves them.
        seed: of the choice of captions.
    """

    def __init__(self, processor, *, captions_per_image=1, max_caption_length=None, seed=0):
        if captions_per_image is not None and captions_per_image < 1:
            raise DataError(f"captions_per_image is {captions_per_image}; it must be at least 1, or None for all.")
        if max_caption_length is not None and max_caption_length < 1:
            raise DataError(f"max_caption_length is {max_caption_length}; it must be at least 1.")
        self.processor = processor
        self.captions_per_image = captions_per_image
        self.max_caption_length = max_caption_length
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        """Choose the captions of another epoch from now on."""
        self.epoch = epoch

    def __call__(self, rows):
        """Collate rows.

        Args:
            rows: list of B mappings.

        Returns:
            What the processor returns: `visual_features` `(B, N, D)`, `visual_boxes` `(B, N, 4)` if rows have boxes,
            `attention_mask` `(B, N)` - or `pixel_values` `(B, 3, height, width)` -, and `labels` `(B * C, T)`, image by
            image, unless no row has captions. If the rows have `caption_weights`, a number for each of their captions,
            also `caption_weights` `(B * C,)`; if they have `row_index`, a whole number, also `row_index` `(B,)`.
            An empty dict for no rows (the share of a process in a batch too small for all, see `EpochSampler`).

        Raises:
            DataError: some rows have boxes and others do not, or a row has neither features nor an image.
        """
        if not rows:
            return {}
        chosen = self._choose_captions(rows)
        batch = self.processor(
            **visual_arguments(rows),
            captions=chosen and [_pick(row.get("captions"), places) for row, places in zip(rows, chosen, strict=True)],
        )
        if chosen and all(row.get("caption_weights") is not None for row in rows):
            weights = [_pick(row["caption_weights"], places, 0.0) for row, places in zip(rows, chosen, strict=True)]
            batch["caption_weights"] = torch.tensor(weights).flatten()
        if all(row.get("row_index") is not None for row in rows):
            batch["row_index"] = torch.tensor([int(row["row_index"]) for row in rows])
        if self.max_caption_length is not None and "labels" in batch:
            batch["labels"] = batch["labels"][:, : self.max_caption_length]
        return batch

    def _choose_captions(self, rows):
        """The places of C captions in each row's list, None for those that it lacks; None if no row has any."""
        numbers = [len(row.get("captions") or []) for row in rows]
        if not any(numbers):
            return None
        wanted = self.captions_per_image or max(numbers)
        return [self._choose(row, number, wanted) for row, number in zip(rows, numbers, strict=True)]

    def _choose(self, row, number, wanted):
        if number <= wanted:
            return [*range(number), *[None] * (wanted - number)]
        keys = [_digest(self.seed, self.epoch, row.get("image_id"), caption) for caption in range(number)]
        return sorted(range(number), key=keys.__getitem__)[:wanted]


def visual_arguments(rows):
    """What a processor is given of rows: `visual_features` and `visual_boxes`, `None` for no boxes; or else `images`.

    Raises:
        DataError: some rows have boxes and others do not, or a row has neither features nor an image.
    """
    if any(row.get("visual_features") is None for row in rows):
        images = [row.get("image") for row in rows]
        if any(image is None for image in images):
            raise DataError(f"{_name(rows[images.index(None)])} has neither visual_features nor an image.")
        return {"images": images}
    boxes = [row.get("visual_boxes") for row in rows]
    having = [_is_array(box) for box in boxes]
    if any(having) and not all(having):
        raise DataError(f"{_name(rows[having.index(False)])} has no visual_boxes, but other rows of the batch have.")
    return {
        "visual_features": [np.asarray(row["visual_features"]) for row in rows],
        "visual_boxes": [np.asarray(box) for box in boxes] if all(having) else None,
    }


def _pick(values, places, missing=None):
    return [missing if place is None else values[place] for place in places]


def _digest(*parts):
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def _is_array(boxes):
    """False for None, and for the NaN that stands for None in data sets with `Array2D`."""
    return boxes is not None and np.ndim(boxes) > 0


def _name(row):
    return f"The row with image_id {row['image_id']}" if "image_id" in row else "A row"
