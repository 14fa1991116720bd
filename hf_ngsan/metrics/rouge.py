"""ROUGE-L (Lin, 2004) as the COCO evaluation computes it."""

from collections.abc import Mapping, Sequence

import numpy as np

BETA = 1.2
"""Weight of recall against precision, as in the COCO evaluation."""
MAX_PAIRS = 2 * 10**9
"""Pairs of words to compare: 44,000 times 44,000 take a second and at most 250 MB."""


def rouge_l_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns ROUGE-L of each image: the F-measure (beta 1.2) of the best precision and recall over the references.

    Words are divided by the plain blank only, as in the public scorer: "1 1/2", which the tokenizer writes with a
    no-break space, is one word here and two in BLEU and CIDEr. An empty prediction scores 0 (the public scorer gives
    it 1 beside an empty reference).

    Args:
        predictions: one tokenized caption an image.
        references: its tokenized references.

    Returns:
        float64 `(images,)`.

    Raises:
        ValueError: a prediction and a reference have more than `MAX_PAIRS` pairs of words.
    """
    return np.array(
        [rouge_l_score(p, rs, row) for row, (p, rs) in enumerate(zip(predictions, references, strict=True))]
    )


def rouge_l_score(prediction: str, references: Sequence[str], row: int = 0) -> float:
    if not prediction:
        return 0.0
    words = prediction.split(" ")
    longest = MAX_PAIRS // len(words)
    # All bits of a long text would take gigabytes; most of its words are in no reference.
    shared = set(words) if len(words) < 1000 else {word for text in references for word in text.split(" ")}
    positions: dict[str, int] = {}
    for index, word in enumerate(words):
        if word in shared:
            positions[word] = positions.get(word, 0) | 1 << index
    precision = recall = 0.0
    for reference in references:
        reference_words = reference.split(" ")
        if len(reference_words) > longest:
            raise ValueError(
                f"ROUGE-L compares each word of a prediction with each of a reference; {len(words):,} words of "
                f"prediction {row} and {len(reference_words):,} of a reference are more than {MAX_PAIRS:,} pairs: "
                "shorten one of them, or leave this metric out."
            )
        common = longest_common_subsequence(positions, len(words), reference_words)
        precision = max(precision, common / len(words))
        recall = max(recall, common / len(reference_words))
    if not precision:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def longest_common_subsequence(positions: Mapping[str, int], length: int, words: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence, with a bit for each word of the first text (Hyyro, 2004).

    Args:
        positions: for each word that both texts have an integer with a bit at each of its places in the first.
        length: number of words of the first text.
        words: the second text.
    """
    everything = (1 << length) - 1
    open_columns = everything
    for word in words:
        matches = positions.get(word)
        if matches:
            matches &= open_columns
            open_columns = (open_columns + matches | open_columns - matches) & everything
    return length - open_columns.bit_count()
