"""Loading of captioners and ensembles by name, and captions of rows on one process or several.

```python
model, processor = load_captioners(["runs/first", "runs/second"])
generate_captions(model, processor, rows, num_beams=3)
```
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.collator import visual_arguments
from ...guests.captioners import caption_images_of, guest_of
from ...loading.models import ModelFolderError, is_guest, load_captioner
from ...models.captioning import CaptioningForConditionalGeneration
from ...models.ensemble import EnsembleForConditionalGeneration
from ...training.batches import take
from ...training.gathering import map_sharded


def load_captioners(names: Sequence[str]) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner, or several that caption together as an ensemble, and the processor of the first.

    Args:
        names: names for [`~hf_ngsan.loading.models.find_model_folder`].

    Raises:
        FileNotFoundError, ModelFolderError: see [`~hf_ngsan.loading.models.load_model`]; captioners of other
            vocabularies, or that prepare images in other ways.
    """
    loaded = [load_captioner(name) for name in names]
    model, processor = loaded[0]
    if len(loaded) == 1:
        return model, processor
    for name, (guest, _) in zip(names, loaded, strict=True):
        if is_guest(guest.config):
            raise ModelFolderError(
                f"{name} holds a {guest.config.model_type} model, which is in no ensemble; give it alone."
            )

    def image_settings(processor: Any) -> dict | None:
        return None if processor.image_processor is None else processor.image_processor.to_dict()

    first: Any = processor
    for name, (_, of_other) in zip(names[1:], loaded[1:], strict=True):
        other: Any = of_other
        if other.tokenizer.get_vocab() != first.tokenizer.get_vocab():
            raise ModelFolderError(f"{name} has another vocabulary than {names[0]}; an ensemble needs one vocabulary.")
        if image_settings(other) != image_settings(first):
            raise ModelFolderError(f"{name} prepares images in another way than {names[0]}; an ensemble needs one way.")
    try:
        return EnsembleForConditionalGeneration([model for model, _ in loaded]).eval(), processor
    except ValueError as error:
        raise ModelFolderError(f"{', '.join(names)} cannot caption together: {error}") from error


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
        accelerator: accelerator of the processes that split the work; each gets the whole result, which is the same
            for any number of them.
        batch_size: images captioned together in one process.
        generate_arguments: arguments of `model.generate`, such as `num_beams`; the model's defaults otherwise.
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
        beginnings: index of a row and a prefix of its caption, any number for each row.
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
        prefixes: beginning of the caption of each row, which is part of the caption.
    """
    if is_guest(model.config):
        images = visual_arguments(batch)["images"]
        with torch.inference_mode():
            return caption_images_of(guest_of(model, processor), images, prefixes, **generate_arguments)
    inputs = processor(**visual_arguments(batch), text=list(prefixes) if prefixes is not None else None)
    with torch.inference_mode():
        ids = cast(CaptioningForConditionalGeneration, model).generate(**inputs.to(model.device), **generate_arguments)
    return processor.batch_decode(ids, skip_special_tokens=True)
