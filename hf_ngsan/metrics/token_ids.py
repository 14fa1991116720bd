"""Token-id sequences from generation and collators, cut at the end of the caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .ngrams import WordSequences

if TYPE_CHECKING:
    import torch

    TokenIds = Sequence[int] | np.ndarray | torch.Tensor
    TokenIdSequences = Sequence[TokenIds] | np.ndarray | torch.Tensor


def cut_sequences(
    sequences: TokenIdSequences, eos_token_id: int | None = None, ignored_token_ids: Sequence[int] = ()
) -> WordSequences:
    """Cuts each sequence after its first end token and leaves out padding and ignored tokens.

    Args:
        sequences: a 2-D array or tensor of token ids `(R, T)`, or a list of 1-D lists, arrays or tensors.
        eos_token_id: the end token, which stays; `None` cuts nothing.
        ignored_token_ids: tokens to leave out. Negative ids are always left out.

    Raises:
        ValueError: the ids are no integers, or have the wrong number of dimensions.
    """
    tokens, lengths = flatten_tokens(sequences)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    keep = tokens >= 0
    if len(ignored_token_ids):
        keep &= ~np.isin(tokens, np.asarray(ignored_token_ids))
    if eos_token_id is not None:
        ends = tokens == eos_token_id
        ends_before = np.cumsum(ends) - ends
        row_starts = np.cumsum(lengths) - lengths
        keep &= ends_before == ends_before[row_starts[rows]]
    return WordSequences(tokens[keep], np.bincount(rows[keep], minlength=len(lengths)))


def flatten_tokens(sequences: TokenIdSequences) -> tuple[np.ndarray, np.ndarray]:
    """Returns all tokens one after another, int64 `(tokens,)`, and the lengths of the sequences, int64 `(R,)`."""
    if hasattr(sequences, "ndim"):
        matrix = as_integers(sequences)
        if matrix.ndim != 2:
            raise ValueError(f"Token ids must have the shape (captions, length), not {tuple(matrix.shape)}.")
        return matrix.reshape(-1), np.full(matrix.shape[0], matrix.shape[1], dtype=np.int64)
    rows = [as_integers(sequence) for sequence in sequences]
    for row, array in enumerate(rows):
        if array.ndim != 1:
            raise ValueError(f"Caption {row} must be one sequence of token ids, not an array of shape {array.shape}.")
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64), lengths


def as_integers(values: TokenIds | TokenIdSequences) -> np.ndarray:
    """Returns token ids as int64; raises a ValueError if they are no integers."""
    if isinstance(values, str):
        raise ValueError(f"Captions must be token ids here, but one is the text {values[:40]!r}.")
    detach = getattr(values, "detach", None)
    array = np.asarray(values if detach is None else detach().cpu())
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"Token ids must be integers, not {array.dtype}.")
    return array.astype(np.int64, copy=False)
