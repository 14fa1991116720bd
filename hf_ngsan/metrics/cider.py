"""CIDEr and CIDEr-D (Vedantam, Zitnick and Parikh, CVPR 2015) over whole arrays of captions."""

from typing import Literal

import numpy as np

from .groups import ScoredGroups
from .ngrams import ORDER, expand_ranges

SIGMA = 6.0
"""Width of the Gaussian length penalty of CIDEr-D (section 5 of the paper)."""
FACTOR = 10.0
"""Of both variants: eq. 4 of the paper has it for CIDEr-D, and the public code of its authors for CIDEr as well."""


def cider_scores(
    groups: ScoredGroups,
    log_frequencies: np.ndarray,
    num_documents: int,
    variant: Literal["cider_d", "cider"] = "cider_d",
) -> np.ndarray:
    """Scores the candidates of each image against its references.

    Args:
        groups: the captions.
        log_frequencies: float64 `(groups.num_ngrams,)`, the logarithm of each n-gram's document frequency.
        num_documents: the number of documents behind these frequencies.
        variant: "cider_d" is eq. 4 of the paper: clipped tf-idf vectors, a Gaussian penalty (sigma 6) on the difference
            in length, times 10, where length is the number of bigrams as in the public code. "cider" is eq. 2 and 3:
            the mean cosine of the tf-idf vectors over references and orders, neither clipped nor penalized, times 10 as
            in the public code.

    Returns:
        float64 `(candidates,)`, a score from 0 to 10 for each candidate; 0 for an empty one.
    """
    weights = groups.counts * (np.log(float(num_documents)) - log_frequencies)[groups.ngrams]
    vectors = groups.sequences * ORDER + groups.orders
    norms = np.sqrt(np.bincount(vectors, weights=weights**2, minlength=len(groups.images) * ORDER)).reshape(-1, ORDER)

    # Every candidate makes a pair with each reference of its image.
    candidate_images, reference_images = groups.images[groups.candidates], groups.images[groups.references]
    number_of_image = np.bincount(reference_images, minlength=int(candidate_images.max(initial=-1)) + 1)
    first_of_image = np.cumsum(number_of_image) - number_of_image
    number = number_of_image[candidate_images]
    pair_candidate, reference = expand_ranges(first_of_image[candidate_images], number)
    pair_candidate_sequence, pair_reference_sequence = groups.candidates[pair_candidate], groups.references[reference]
    # References of an image are numbered in a row, so a pair is found from the candidate and the reference's number.
    pair_base = np.empty(len(groups.images), dtype=np.int64)
    pair_base[groups.candidates] = np.cumsum(number) - number - groups.references[first_of_image[candidate_images]]

    match, shared = expand_ranges(groups.shared_starts, groups.shared_numbers)
    candidate_entry, reference_entry = groups.candidate_entries[match], groups.reference_entries[shared]
    candidate_weight, reference_weight = weights[candidate_entry], weights[reference_entry]
    if variant == "cider_d":
        candidate_weight = np.minimum(candidate_weight, reference_weight)
    pair = pair_base[groups.sequences[candidate_entry]] + groups.sequences[reference_entry]
    dots = (
        np.bincount(
            pair * ORDER + groups.orders[candidate_entry],
            weights=candidate_weight * reference_weight,
            minlength=len(pair_candidate) * ORDER,
        )
        .reshape(-1, ORDER)
        .astype(float)
    )
    scale = norms[pair_candidate_sequence] * norms[pair_reference_sequence]
    similarity = np.divide(dots, scale, out=dots, where=scale != 0).mean(axis=1)
    if variant == "cider_d":
        bigrams = np.maximum(groups.lengths - 1, 0).astype(float)
        difference = bigrams[pair_candidate_sequence] - bigrams[pair_reference_sequence]
        similarity *= FACTOR * np.exp(-(difference**2) / (2 * SIGMA**2))
    else:
        similarity *= FACTOR
    return np.bincount(pair_candidate, weights=similarity, minlength=len(number)) / number
