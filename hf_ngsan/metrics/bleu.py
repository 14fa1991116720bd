"""BLEU-1 to BLEU-4 (Papineni et al., ACL 2002) as the COCO evaluation computes it."""

import numpy as np

from .groups import ScoredGroups
from .ngrams import ORDER, starts_of_runs

# The public scorer keeps its divisions finite with these two numbers; they show in the last digits of its results.
SMALL, TINY = 1e-9, 1e-15


def bleu_scores(groups: ScoredGroups) -> tuple[np.ndarray, np.ndarray]:
    """Returns BLEU of the corpus and of each image.

    The brevity penalty takes the reference whose length is closest to the prediction's, the shorter one of two equally
    close ones. The corpus value comes from summed counts; it is not the mean of the images' values.

    Args:
        groups: the references, and one candidate an image in the order of images.

    Returns:
        `(corpus, per_image)`: float64 arrays `(4,)` and `(images, 4)`.
    """
    lengths = groups.lengths[groups.candidates]
    matches = clipped_matches(groups)
    guesses = np.maximum(lengths[:, None] - np.arange(ORDER), 0)
    closest = closest_lengths(groups, lengths)
    per_image = combine_orders(matches, guesses, lengths, closest)
    corpus = combine_orders(matches.sum(0), guesses.sum(0), lengths.sum(), closest.sum())
    return corpus, per_image


def clipped_matches(groups: ScoredGroups) -> np.ndarray:
    """Counts the n-grams of each candidate that its references contain, as often as in one reference at most.

    Returns:
        float64 `(candidates, 4)`.
    """
    found = groups.shared_numbers > 0
    entries, starts = groups.candidate_entries[found], groups.shared_starts[found]
    matches = np.zeros((len(groups.images), ORDER))
    if len(entries):
        # The largest count from each start to its end: the even ones of the reductions between all bounds.
        bounds = np.stack([starts, starts + groups.shared_numbers[found]], axis=1).reshape(-1)
        most = np.maximum.reduceat(np.append(groups.counts[groups.reference_entries], 0), bounds)[::2]
        np.add.at(
            matches, (groups.sequences[entries], groups.orders[entries]), np.minimum(groups.counts[entries], most)
        )
    return matches[groups.candidates]


def closest_lengths(groups: ScoredGroups, lengths: np.ndarray) -> np.ndarray:
    """Returns for each image the length of the reference that is closest to `lengths`, int64 `(images,)`."""
    images = groups.images[groups.references]
    reference_lengths = groups.lengths[groups.references]
    distance = np.abs(reference_lengths - lengths[images])
    order = np.lexsort((reference_lengths, distance, images))
    return reference_lengths[order][starts_of_runs(images[order])]


def combine_orders(
    matches: np.ndarray, guesses: np.ndarray, length: np.ndarray, reference_length: np.ndarray
) -> np.ndarray:
    """Returns BLEU-1 to BLEU-4, float64 `(..., 4)`, from counts `(..., 4)` and lengths `(...)`."""
    precision = (matches + TINY) / (guesses + SMALL)
    bleu = np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, ORDER + 1))
    ratio = (length + TINY) / (reference_length + SMALL)
    penalty = np.exp(np.minimum(1 - 1 / ratio, 0))
    return bleu * np.asarray(penalty)[..., None]
