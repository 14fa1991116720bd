"""Reference-free signs of a broken captioner: bad endings, repetitions, few distinct captions."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ngrams import count_ngrams
from .tokenization import TokenizerChoice, encode_words, tokenize

# Last words of truncated captions: articles, prepositions, conjunctions, forms of "to be" and the like.
BAD_ENDINGS = frozenset(
    """
    a about above across after against along amid among an and are as at atop because before behind below beneath beside
    between but by during each every for from if in into is its near of on onto or other over than that the their these
    this those through to toward towards under underneath until upon very was were where which while who with within
    without your
    """.split()  # noqa: SIM905
)


def caption_diagnostics(captions: Sequence[str], tokenizer: TokenizerChoice = "ptb") -> dict[str, Any]:
    """Measures signs of broken generation in a non-empty set of captions.

    Args:
        captions, tokenizer: as for [`~hf_ngsan.metrics.evaluation.CaptionMetric`].

    Returns:
        `num_captions`, and shares between 0 and 1: `empty` (captions without words), `distinct_captions`,
        `bad_endings` (captions that end with a word like "a", "with" or "of"), `stutter` (with the same word twice in a
        row), `repeated_2_grams`, `..._3_grams`, `..._4_grams` (with a repeated n-gram), `distinct_1`, `distinct_2`
        (distinct words and bigrams divided by all; Li et al., 2016). Also `mean_length`, `length_histogram` (`{words:
        captions}`) and `vocabulary_size`, the number of distinct words.

    Example:

    ```python
    >>> from hf_ngsan.metrics.diagnostics import caption_diagnostics
    >>> found = caption_diagnostics(["a man riding a", "a dog dog", "two birds", "two birds"])
    >>> found["bad_endings"], found["stutter"], found["distinct_captions"]
    (0.25, 0.25, 0.75)

    ```
    """
    tokenized = tokenize(list(captions), tokenizer)
    words = [caption.split() for caption in tokenized]
    lengths = [len(caption) for caption in words]
    sequences, used = encode_words(tokenized)
    levels = count_ngrams(sequences)
    result: dict[str, Any] = {
        "num_captions": len(words),
        "empty": float(np.mean([not caption for caption in words])),
        "distinct_captions": len(set(map(tuple, words))) / len(words),
        "bad_endings": float(np.mean([bool(caption) and is_bad_ending(caption[-1]) for caption in words])),
        "stutter": float(np.mean([any(map(str.__eq__, caption, caption[1:])) for caption in words])),
    }
    for n, level in enumerate(levels[1:], start=2):
        result[f"repeated_{n}_grams"] = len(np.unique(level.sequences[level.counts > 1])) / len(words)
    for n, level in enumerate(levels[:2], start=1):
        result[f"distinct_{n}"] = len(level.words) / max(int(level.counts.sum()), 1)
    result["mean_length"] = sum(lengths) / len(lengths)
    result["length_histogram"] = dict(sorted(Counter(lengths).items()))
    result["vocabulary_size"] = len(used)
    return result


def is_bad_ending(word: str) -> bool:
    return word.rstrip(".") in BAD_ENDINGS  # the tokenizer treats "a." as an initial
