"""BLEU-1 to BLEU-4 (Papineni et al., ACL 2002) as the COCO evaluation computes it."""

import numpy as np

from .ngrams import ORDER, NGramTrie

# The public scorer keeps its divisions finite with these two numbers; they show in the last digits of its results.
_SMALL, _TINY = 1e-9, 1e-15


def bleu_scores(predictions, references, references_per_image):
    """BLEU of each image and of the corpus.

    The brevity penalty takes the reference whose length is closest to the prediction's, the shorter one of two equally
    close ones. The corpus value comes from summed counts; it is not the mean of the images' values.

    Args:
        predictions (`WordSequences`): one caption an image.
        references (`WordSequences`): all references, image by image.
        references_per_image: int64 `(images,)`, each at least 1.

    Returns:
        `(corpus, per_image)`: float64 arrays `(4,)` and `(images, 4)`.
    """
    images = np.arange(len(predictions))
    image_of_reference = np.repeat(images, references_per_image)
    matches = _clipped_matches(predictions, references, image_of_reference)
    guesses = np.maximum(predictions.lengths[:, None] - np.arange(ORDER), 0)
    closest = _closest_lengths(predictions.lengths, references.lengths, image_of_reference)
    per_image = _combine(matches, guesses, predictions.lengths, closest)
    corpus = _combine(matches.sum(0), guesses.sum(0), predictions.lengths.sum(), closest.sum())
    return corpus, per_image


def _clipped_matches(predictions, references, image_of_reference):
    """How many n-grams of each prediction its references contain, each counted as often as in one reference at most."""
    candidates = NGramTrie.count(predictions, np.arange(len(predictions)))
    captions = NGramTrie.count(references, np.arange(len(references)))
    pooled = NGramTrie.count(references, image_of_reference)
    matches = np.zeros((len(predictions), ORDER))
    in_pool = captions.locate(pooled, image_of_reference)
    of_candidate = candidates.locate(pooled, np.arange(len(predictions)))
    for n in range(ORDER):
        most = np.zeros(len(pooled.levels[n].keys), dtype=np.int64)
        np.maximum.at(most, in_pool[n], captions.levels[n].counts)
        level, found = candidates.levels[n], of_candidate[n] >= 0
        clipped = np.minimum(level.counts[found], most[of_candidate[n][found]])
        matches[:, n] = np.bincount(level.groups[found], weights=clipped, minlength=len(predictions))
    return matches


def _closest_lengths(lengths, reference_lengths, image_of_reference):
    distance = np.abs(reference_lengths - lengths[image_of_reference])
    order = np.lexsort((reference_lengths, distance, image_of_reference))
    first = np.unique(image_of_reference[order], return_index=True)[1]
    return reference_lengths[order][first]


def _combine(matches, guesses, length, reference_length):
    precision = (matches + _TINY) / (guesses + _SMALL)
    bleu = np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, ORDER + 1))
    ratio = (length + _TINY) / (reference_length + _SMALL)
    penalty = np.exp(np.minimum(1 - 1 / ratio, 0))
    return bleu * np.asarray(penalty)[..., None]
