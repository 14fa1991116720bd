"""Captions for rows of the feature contract, on one process or several."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from tqdm.auto import tqdm
from transformers import PreTrainedModel, ProcessorMixin

from ..data.collator import visual_arguments
from .rows import take


def generate_captions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Sequence,
    accelerator: Accelerator | None = None,
    *,
    batch_size: int = 64,
    **generate_arguments,
) -> list[str]:
    """Caption every row once, in the order of the rows.

    Args:
        model: a captioner on the accelerator's device, not wrapped, in evaluation mode.
        processor: the model's.
        rows: a `datasets.Dataset` of the feature contract.
        accelerator: to share the work among its processes; each gets the whole result, which is the same for any number
            of them.
        batch_size: images captioned at once in one process.
        generate_arguments: for `model.generate`, such as `num_beams`; the model's defaults otherwise.
    """

    def caption(indices: range) -> list[str]:
        return caption_batch(model, processor, take(rows, indices), accelerator, **generate_arguments)

    return share_out(caption, len(rows), batch_size, accelerator)


def caption_batch(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    batch: Sequence[dict],
    accelerator: Accelerator | None = None,
    prefixes: Sequence[str] | None = None,
    **generate_arguments,
) -> list[str]:
    """Caption a few rows of the feature contract.

    Args:
        model, processor, generate_arguments: see [`generate_captions`].
        batch: rows.
        accelerator: for its mixed precision.
        prefixes: what the caption of each row shall begin with; it is part of the caption.
    """
    inputs = processor(**visual_arguments(batch), text=list(prefixes) if prefixes is not None else None)
    with torch.inference_mode(), accelerator.autocast() if accelerator else nullcontext():
        ids = model.generate(**inputs.to(model.device), **generate_arguments)
    return processor.batch_decode(ids, skip_special_tokens=True)


def share_out(
    work: Callable[[range], list], num_items: int, batch_size: int, accelerator: Accelerator | None = None
) -> list:
    """Map items to results in batches that processes take in turn.

    The batches, and so the results, are the same for any number of processes.

    Args:
        work: returns one result for each index of a range.
        num_items: items there are.
        batch_size: length of a range; the last may be shorter.
        accelerator: whose processes share the work.

    Returns:
        All results in the order of the items, in every process.
    """
    num_processes = accelerator.num_processes if accelerator else 1
    process_index = accelerator.process_index if accelerator else 0
    starts = range(0, num_items, batch_size)[process_index::num_processes]
    own = []
    for start in tqdm(starts, desc="captioning", unit=" batches", leave=False, disable=process_index > 0 or None):
        indices = range(start, min(start + batch_size, num_items))
        own += zip(indices, work(indices), strict=True)
    shared = gather_object(own) if accelerator else own
    return [result for _, result in sorted(shared, key=lambda item: item[0])]
