"""Attention of a captioner to visual tokens for each predicted word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase


@dataclass(frozen=True)
class WordAttention:
    """Cross-attention of one caption.

    Attributes:
        words: the T words of the caption, without special tokens.
        weights: float32 `(T, N)`; row t belongs to the prediction of word t and sums to 1 over the N visual tokens.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.visualization import WordAttention
    >>> attention = WordAttention(["a", "red", "bus"], np.array([[0.5, 0.5], [0.1, 0.9], [0.2, 0.8]], np.float32))
    >>> attention.position("bus"), attention.of("bus").tolist() == attention.of(2).tolist()
    (2, True)

    ```
    """

    words: list[str]
    weights: np.ndarray

    def of(self, word: str | int) -> np.ndarray:
        """Returns the weights `(N,)` of a word, given as text (its first occurrence) or position.

        Raises:
            ValueError: the caption has no such word.
        """
        return self.weights[self.position(word)]

    def position(self, word: str | int) -> int:
        """Returns the position of a word in the caption; raises as `of`."""
        if isinstance(word, str) and word in self.words:
            return self.words.index(word)
        if isinstance(word, int) and -len(self.words) <= word < len(self.words):
            return word % len(self.words)
        raise ValueError(
            f"The caption {' '.join(self.words)!r} has no word {word!r}; give one of its words or its index."
        )


def word_attention(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    inputs: Mapping[str, Any],
    sequences: torch.Tensor,
    layer: int | None = None,
) -> list[WordAttention]:
    """Returns the cross-attention to visual tokens for every word of generated captions.

    Args:
        model: a captioner of this package.
        tokenizer: tokenizer of the model.
        inputs: outputs of the processor for B images; prefixes and labels are ignored.
        sequences: int64 `(B * C, length)`, the output of `generate()` with its start tokens; C captions an image, those
            of one image next to each other.
        layer: the decoder layer; None for the mean over all. The mean over heads is taken in either case.

    Returns:
        The attention of each sequence, over the real visual tokens of its image.

    Raises:
        ValueError: the decoder has no such layer.
    """
    from ..models import attention_maps

    captions = attention_maps.word_attention(model, tokenizer, inputs, sequences, layer)
    return [WordAttention(*of_caption) for of_caption in captions]
