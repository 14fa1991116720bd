"""Captions for rows of the feature contract, on one process or several."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.collator import visual_arguments
from ...models.captioning import CaptioningForConditionalGeneration
from ...training.batches import take
from ...training.gathering import map_sharded


def generate_captions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    batch_size: int = 64,
    **generate_arguments: Any,
) -> list[str]:
    """Captions every row once, in the order of the rows.

    Args:
        model: a captioner on the accelerator's device, not wrapped, in evaluation mode.
        processor: the model's.
        rows: a `datasets.Dataset` of the feature contract.
        accelerator: to share the work among its processes; each gets the whole result, which is the same for any number
            of them.
        batch_size: images captioned together in one process.
        generate_arguments: for `model.generate`, such as `num_beams`; the model's defaults otherwise.
    """

    def caption(indices: range) -> list[str]:
        return caption_batch(model, processor, take(rows, indices), **generate_arguments)

    return map_sharded(caption, len(rows), batch_size, accelerator, description="captioning")


def complete_captions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    beginnings: Sequence[tuple[int, str]],
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
    max_new_tokens: int = 20,
) -> list[str]:
    """Finishes captions greedily.

    Args:
        model, processor, rows, accelerator: see [`generate_captions`].
        beginnings: index of a row and what its caption begins with, any number for each row.
        batch_size: captions finished together in one process.
        max_new_tokens: tokens added to a beginning at most.

    Returns:
        The whole captions, in the order of the beginnings.
    """

    def complete(positions: range) -> list[str]:
        indices, prefixes = zip(*(beginnings[position] for position in positions), strict=True)
        return caption_batch(
            model,
            processor,
            take(rows, indices),
            prefixes=prefixes,
            num_beams=1,
            length_penalty=None,
            max_new_tokens=max_new_tokens,
        )

    return map_sharded(complete, len(beginnings), batch_size, accelerator, description="captioning")


def caption_batch(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    batch: Sequence[dict],
    prefixes: Sequence[str] | None = None,
    **generate_arguments: Any,
) -> list[str]:
    """Captions a few rows of the feature contract.

    Args:
        model, processor, generate_arguments: see [`generate_captions`].
        batch: rows.
        prefixes: what the caption of each row shall begin with; it is part of the caption.
    """
    inputs = processor(**visual_arguments(batch), text=list(prefixes) if prefixes is not None else None)
    with torch.inference_mode():
        ids = cast(CaptioningForConditionalGeneration, model).generate(**inputs.to(model.device), **generate_arguments)
    return processor.batch_decode(ids, skip_special_tokens=True)
