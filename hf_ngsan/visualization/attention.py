"""Which visual tokens a captioner attended to while it predicted each word."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WordAttention:
    """Cross-attention of one caption.

    Attributes:
        words: the T words of the caption, without special tokens.
        weights: float32 `(T, N)`; row t belongs to the prediction of word t and sums to 1 over the N visual tokens.
    """

    words: list[str]
    weights: np.ndarray

    def of(self, word: str | int) -> np.ndarray:
        """The weights `(N,)` of a word, given itself (its first occurrence) or its position.

        Raises:
            ValueError: the caption has no such word.
        """
        return self.weights[self.position(word)]

    def position(self, word: str | int) -> int:
        """The position of a word in the caption; raises as `of` does."""
        if isinstance(word, str) and word in self.words:
            return self.words.index(word)
        if isinstance(word, int) and -len(self.words) <= word < len(self.words):
            return word % len(self.words)
        raise ValueError(
            f"The caption {' '.join(self.words)!r} has no word {word!r}; give one of its words or its index."
        )


def word_attention(model, tokenizer, inputs: Mapping, sequences, layer: int | None = None) -> list[WordAttention]:
    """Cross-attention over visual tokens for every word of generated captions.

    Args:
        model: a captioner of this package; its method `word_attention` makes the pass over the captions.
        tokenizer: the model's.
        inputs: what the processor made of B images; its prefixes and labels are not looked at.
        sequences (`torch.LongTensor` of shape `(B * C, length)`): what `generate()` returned, start token included; C
            captions an image, those of one image next to each other.
        layer: the decoder layer to look at; None for the mean over all. The mean over heads is taken in either case.

    Returns:
        One `WordAttention` for each sequence, over the real visual tokens of its image.

    Raises:
        ValueError: no such layer.
    """
    return [WordAttention(*found) for found in model.word_attention(tokenizer, inputs, sequences, layer)]
