"""Visualness of words in the captions of a dataset: the mean dependence of each word on the image (RSTNet)."""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.collator import visual_arguments
from ...models.attention_maps import word_visualness_pairs
from ...training.batches import take
from ...training.gathering import map_sharded


class WordVisualness(NamedTuple):
    """Visualness of a word over its occurrences.

    Attributes:
        word: the word.
        mean: mean over the occurrences, in [0, 1]; images without the word in their caption do not count.
        occurrences: number of occurrences.
        std: standard deviation over the occurrences; 0 for one.
    """

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
    """Captions every row; returns the words of each caption with their visualness.

    Args:
        model: a captioner with adaptive attention, in evaluation mode.
        processor, rows, accelerator, batch_size, generate_arguments: see
            [`~hf_ngsan.tasks.captioning.generate.generate_captions`].

    Raises:
        ValueError: the captioner has no visualness.
    """
    captioner, tokenizer = cast(Any, model), processor.tokenizer
    if not hasattr(model, "word_visualness") or not model.config.adaptive_attention:
        raise ValueError(
            f"Visualness needs a captioner with adaptive attention, such as RSTNet; this one has the type "
            f"{model.config.model_type}{' without it' if hasattr(model, 'word_visualness') else ''}."
        )

    def caption(indices: range) -> list[list[tuple[str, float]]]:
        inputs = processor(**visual_arguments(take(rows, indices))).to(model.device)
        with torch.inference_mode():
            if "pixel_values" in inputs:
                inputs = captioner.model.get_visual_tokens(**inputs)
            sequences = captioner.generate(**inputs, **generate_arguments)
        return word_visualness_pairs(captioner, tokenizer, inputs, sequences)

    return map_sharded(caption, len(rows), batch_size, accelerator, description="captioning")


def table_of_words(captions: Iterable[Iterable[tuple[str, float]]]) -> list[WordVisualness]:
    """Returns the visualness of each word, the most visual first and equal ones by alphabet.

    The paper averages over all images, of which those without the word count as 0, so that frequent words are the most
    visual; here the mean is over occurrences.
    """
    found = defaultdict(list)
    for caption in captions:
        for word, value in caption:
            found[word].append(value)
    table = [
        WordVisualness(word, statistics.fmean(values), len(values), statistics.pstdev(values))
        for word, values in found.items()
    ]
    return sorted(table, key=lambda entry: (-entry.mean, entry.word))
