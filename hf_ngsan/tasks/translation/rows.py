"""Pairs of sentences for training and evaluation of translators."""

import logging
from collections.abc import Sequence

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ...data import DataError, load_data
from ...data.parallel_text import SIDES, name_lines

logger = logging.getLogger(__name__)

ROWS_TOKENIZED = 1_000
"""Texts that are tokenized together for their lengths."""


def load_pairs(spec: str, split: str, limit: int | None = None) -> Dataset:
    """Returns one split of parallel text, or its first `limit` pairs, with columns `source`, `target` and `line`.

    Raises:
        DataError: the data cannot be used, or are not parallel text.
    """
    rows = load_data(spec, split)
    missing = [name for name in (*SIDES, "line") if name not in rows.column_names]
    if missing:
        raise DataError(
            f"{spec}, split {split}, is not parallel text (it has no column {missing[0]!r}); write "
            "parallel:SOURCE,source=LANGUAGE,target=LANGUAGE."
        )
    return rows if limit is None else rows.take(limit)


def count_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> np.ndarray:
    """Returns the tokens of each text, its end token included."""
    counts: list[int] = []
    for start in range(0, len(texts), ROWS_TOKENIZED):
        counts += map(len, tokenizer(texts[start : start + ROWS_TOKENIZED], verbose=False)["input_ids"])
    return np.array(counts, dtype=np.int64)


def with_lengths(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, data: str) -> Dataset:
    """Returns the pairs without those with a side of more than `max_length` tokens; a warning counts these.

    The pairs get a column `length`, the tokens of the longer side.

    Raises:
        DataError: no pair is left.
    """
    lengths = np.maximum(*(count_tokens(tokenizer, rows[side][:]) for side in SIDES))
    kept = np.flatnonzero(lengths <= max_length)
    if len(kept) < len(rows):
        lines = np.array(rows["line"][:])[lengths > max_length].tolist()
        found = f"{len(lines)} of {len(rows)} pairs of {data} have a side of more than {max_length} tokens"
        if not len(kept):
            raise DataError(f"{found}: all of them; raise data.max_length.")
        logger.warning("Warning: %s and are not trained on: %s.", found, name_lines(lines))
        rows = rows.select(kept).flatten_indices(keep_in_memory=True)
    return rows.add_column("length", lengths[kept].tolist())


def source_lengths(rows: Dataset, tokenizer: PreTrainedTokenizerBase, data: str) -> np.ndarray:
    """Returns the number of tokens of each source.

    Raises:
        DataError: some have more tokens than the longest sentence of training.
    """
    lengths = count_tokens(tokenizer, rows["source"][:])
    longest = tokenizer.model_max_length
    lines = np.array(rows["line"][:])[lengths > longest].tolist()
    if lines:
        raise DataError(
            f"{len(lines)} of {len(rows)} sources of {data} have more than {longest} tokens, the most that this model "
            f"translates: {name_lines(lines)}; leave them out, or train with a larger data.max_length."
        )
    return lengths
