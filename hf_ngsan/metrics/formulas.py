"""BLEU, CIDEr, CIDEr-D and ROUGE-L of whole arrays of captions, as the COCO evaluation computes them."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from .ngrams import ORDER, ScoredGroups, expand_ranges, starts_of_runs

# The public scorer keeps its divisions finite with these two numbers; they show in the last digits of its results.
SMALL, TINY = 1e-9, 1e-15
BETA = 1.2
"""Weight of recall against precision, as in the COCO evaluation."""
SIGMA = 6.0
"""Width of the Gaussian length penalty of CIDEr-D (section 5 of the paper)."""
FACTOR = 10.0
"""Of both variants: eq. 4 of the paper has it for CIDEr-D, and the public code of its authors for CIDEr as well."""


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
    """
    return np.array([rouge_l_score(*captions) for captions in zip(predictions, references, strict=True)])


def rouge_l_score(prediction: str, references: Sequence[str]) -> float:
    if not prediction:
        return 0.0
    words = prediction.split(" ")
    positions: dict[str, int] = {}
    for index, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << index
    precision = recall = 0.0
    for reference in references:
        reference_words = reference.split(" ")
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
