"""Translations of sentences, on one process or several, and the scores of their words."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...models.captioning import WordGenerationMixin
from ...models.text_scores import TextScores, text_scores
from ...training.gathering import map_sharded
from .rows import source_lengths


def translate_batch(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **generate_arguments: Any
) -> list[str]:
    """Translates a few texts together, each into one line; see [`scored_translations`] for the arguments."""
    return [text for text, _ in scored_translations(model, tokenizer, texts, scores=False, **generate_arguments)]


def scored_translations(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    scores: bool = True,
    **generate_arguments: Any,
) -> list[tuple[str, TextScores | None]]:
    """Returns translations of a few texts, each in one line, with their scores.

    Args:
        model: a translator in evaluation mode.
        tokenizer: the model's.
        texts: texts in the language of the sources.
        scores: whether to compute the scores; they are `None` otherwise.
        generate_arguments: arguments of `model.generate`, such as `num_beams`; the model's defaults otherwise.
    """
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        ids = cast(WordGenerationMixin, model).generate(**inputs, **generate_arguments)
    lines = [" ".join(text.strip().splitlines()) for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    found: list[Any] = text_scores(model, tokenizer, inputs, ids) if scores else [None] * len(lines)
    return list(zip(lines, found, strict=True))


def translate_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    data: str = "the data",
    batch_size: int = 64,
    **generate_arguments: Any,
) -> list[str]:
    """Translates the source of every row, in the order of the rows; batches have sources of similar length.

    Args:
        model: a translator on the accelerator's device, not wrapped, in evaluation mode.
        tokenizer: the model's.
        rows: rows of parallel text.
        accelerator: accelerator of the processes that split the work; each gets the whole result, which is the same
            for any number of them.
        data: name of the rows in messages.
        batch_size: texts translated together in one process.
        generate_arguments: arguments of `model.generate`.

    Raises:
        DataError: sources have more tokens than the model translates.
    """
    order = np.argsort(-source_lengths(rows, tokenizer, data), kind="stable")
    sources = rows["source"][:]

    def translate(places: range) -> list[str]:
        return translate_batch(model, tokenizer, [sources[order[place]] for place in places], **generate_arguments)

    found = map_sharded(translate, len(rows), batch_size, accelerator, description="translating")
    return [found[place] for place in np.argsort(order)]
