"""CIDEr and CIDEr-D (Vedantam et al. 2015): document frequencies, scores, and the reward of self-critical training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .ngrams import (
    ORDER,
    NGramLevel,
    ScoredGroups,
    WordSequences,
    count_documents,
    count_ngrams,
    cut_sequences,
    expand_ranges,
    starts_of_runs,
)
from .tokenization import TokenizerChoice, encode_words, tokenize

if TYPE_CHECKING:
    import torch

    from .ngrams import TokenIds

SIGMA = 6.0  # width of the Gaussian length penalty of CIDEr-D (section 5 of the paper)
FACTOR = 10.0
"""Factor of both variants: eq. 4 of the paper has it for CIDEr-D; the authors' public code also has it for CIDEr."""


class DocumentFrequency:
    """Document frequencies of all n-grams of order 1 to 4; a document is an image with all its captions.

    `from_captions` counts them in the training captions. Words are either text (for `CiderD`, `Cider`,
    `CaptionMetrics`) or token ids (for `CiderDReward`).

    Attributes:
        parents, words, counts: for each order int64 `(D,)`, see [`NGramLevel`]; `counts` are numbers of images.
        num_documents (`int`): number of images counted; its logarithm is the weight of an unseen n-gram.
        vocabulary (`tuple[str]` or `None`): the words, or `None` if the words are token ids.
        eos_token_id (`int` or `None`): for token ids: sequences end with the first such token.
        ignored_token_ids (`tuple[int]`): for token ids: tokens that are always left out (start, padding).

    Example:

    ```python
    >>> from hf_ngsan.metrics import DocumentFrequency
    >>> frequency = DocumentFrequency.from_captions([["a red bus", "a bus"], ["a cat"], ["the cat on a bus"]])
    >>> frequency.num_documents
    3
    >>> frequency.to_dict()["a",], frequency.to_dict()["a", "bus"]
    (3, 2)

    ```
    """

    def __init__(
        self,
        levels: Sequence[NGramLevel],
        images: np.ndarray,
        vocabulary: Iterable[str] | None = None,
        eos_token_id: int | None = None,
        ignored_token_ids: Iterable[int] = (),
    ) -> None:
        """Counts documents from n-grams and the (non-decreasing) image of each sequence; see `from_captions`."""
        self.num_documents = int(starts_of_runs(images).sum())
        check_num_documents(self.num_documents)
        self.parents, self.words = [level.parents for level in levels], [level.words for level in levels]
        self.counts = [count_documents(level.ngrams, images[level.sequences], len(level.words)) for level in levels]
        self.vocabulary = None if vocabulary is None else tuple(vocabulary)
        self.eos_token_id, self.ignored_token_ids = eos_token_id, tuple(ignored_token_ids)
        self.base = max((int(words.max(initial=0)) for words in self.words), default=0) + 1
        self.keys = [p * self.base + w for p, w in zip(self.parents, self.words, strict=True)]

    @classmethod
    def from_captions(
        cls,
        captions: Iterable[Iterable[str] | Iterable[TokenIds]],
        tokenizer: TokenizerChoice = "ptb",
        eos_token_id: int | None = None,
        ignored_token_ids: Sequence[int] = (),
    ) -> DocumentFrequency:
        """Counts the n-grams of a corpus of at least two images.

        Args:
            captions: list of captions for each image. A caption is a string, or a sequence of token ids (list, array or
                tensor; negative ids are padding and are left out).
            tokenizer: splits strings into words; see [`CaptionMetric`].
            eos_token_id: for token ids: the end token. It is counted; later tokens are not.
            ignored_token_ids: for token ids: tokens to leave out, such as the start token.
        """
        rows = []
        for row, image in enumerate(captions):
            if isinstance(image, str) or not (image_captions := list(image)):
                raise ValueError(f"Document frequencies need a list of captions per image; image {row} has none.")
            rows.append(image_captions)
        flat: list[Any] = [caption for image in rows for caption in image]
        images = np.repeat(np.arange(len(rows)), [len(image) for image in rows])
        if any(isinstance(caption, str) for caption in flat):
            sequences, vocabulary = encode_words(tokenize(flat, tokenizer))
            return cls(count_ngrams(sequences), images, vocabulary)
        levels = count_ngrams(cut_sequences(flat, eos_token_id, ignored_token_ids))
        return cls(levels, images, None, eos_token_id, ignored_token_ids)

    def to_dict(self) -> dict[tuple[str | int, ...], int]:
        """Returns all frequencies as `{(word, ...): number of images}`, for inspection."""
        frequencies: dict[tuple[str | int, ...], int] = {}
        above: list[tuple[str | int, ...]] = [()]
        for parents, words, counts in zip(self.parents, self.words, self.counts, strict=True):
            ids = words.tolist()
            names = ids if self.vocabulary is None else [self.vocabulary[word] for word in ids]
            above = [(*above[parent], word) for parent, word in zip(parents.tolist(), names, strict=True)]
            frequencies.update(zip(above, counts.tolist(), strict=True))
        return frequencies

    def log_frequencies(self, levels: Sequence[NGramLevel], vocabulary: Sequence[str] | None = None) -> np.ndarray:
        """Returns the natural logarithm of each n-gram's frequency; 0 for unseen n-grams, as if they were seen once.

        The result is float64, for the n-grams of all levels concatenated; `vocabulary` has the words of text n-grams.
        """
        word_ids = None
        if vocabulary is not None:
            if self.vocabulary is None:
                raise ValueError("These document frequencies were counted on token ids; text needs counts of words.")
            known_words = {word: index for index, word in enumerate(self.vocabulary)}
            word_ids = np.array([known_words.get(word, -1) for word in vocabulary], dtype=np.int64)
        above, frequencies = np.zeros(1, dtype=np.int64), []
        for level, keys, counts in zip(levels, self.keys, self.counts, strict=True):
            parents = above[level.parents]
            last = level.words if word_ids is None else word_ids[level.words]
            known = np.flatnonzero((parents >= 0) & (last >= 0) & (last < self.base))
            above = np.full(len(parents), -1)
            if len(keys):
                sought_keys = parents[known] * self.base + last[known]
                places = np.minimum(np.searchsorted(keys, sought_keys), len(keys) - 1)
                above[known] = np.where(keys[places] == sought_keys, places, -1)
            frequencies.append(np.where(above >= 0, counts[above], 1) if len(counts) else np.ones(len(above)))
        return np.log(np.concatenate(frequencies))


def check_num_documents(num_documents: int) -> None:
    """Raises a ValueError if all weights from document frequencies would be 0."""
    if num_documents < 2:
        remedy = "score more images together, or pass document_frequency=DocumentFrequency.from_captions(...)"
        raise ValueError(f"CIDEr needs document frequencies of at least two images, not {num_documents}; {remedy}.")


def cider_scores(
    groups: ScoredGroups,
    log_frequencies: np.ndarray,
    num_documents: int,
    variant: Literal["cider_d", "cider"] = "cider_d",
) -> np.ndarray:
    """Returns the score from 0 to 10 of each candidate, float64 `(candidates,)`; see [`CiderD`] and [`Cider`].

    `log_frequencies`, float64 `(groups.num_ngrams,)`, are the logarithms of the frequencies in `num_documents`.
    """
    weights = groups.counts * (np.log(float(num_documents)) - log_frequencies)[groups.ngrams]
    vectors = groups.sequences * ORDER + groups.orders
    norms = np.sqrt(np.bincount(vectors, weights=weights**2, minlength=len(groups.images) * ORDER)).reshape(-1, ORDER)

    # Every candidate is paired with each reference of its image.
    candidate_images, reference_images = groups.images[groups.candidates], groups.images[groups.references]
    number_of_image = np.bincount(reference_images, minlength=int(candidate_images.max(initial=-1)) + 1)
    first_of_image = np.cumsum(number_of_image) - number_of_image
    number = number_of_image[candidate_images]
    pair_candidate, reference = expand_ranges(first_of_image[candidate_images], number)
    pair_candidate_sequence, pair_reference_sequence = groups.candidates[pair_candidate], groups.references[reference]
    # References of an image have consecutive numbers, so the candidate and the reference's number determine the pair.
    pair_base = np.empty(len(groups.images), dtype=np.int64)
    pair_base[groups.candidates] = np.cumsum(number) - number - groups.references[first_of_image[candidate_images]]

    match, shared = expand_ranges(groups.shared_starts, groups.shared_numbers)
    candidate_entry, reference_entry = groups.candidate_entries[match], groups.reference_entries[shared]
    candidate_weight, reference_weight = weights[candidate_entry], weights[reference_entry]
    if variant == "cider_d":
        candidate_weight = np.minimum(candidate_weight, reference_weight)
    pair = pair_base[groups.sequences[candidate_entry]] + groups.sequences[reference_entry]
    places, products = pair * ORDER + groups.orders[candidate_entry], candidate_weight * reference_weight
    dots = np.bincount(places, weights=products, minlength=len(pair_candidate) * ORDER).reshape(-1, ORDER).astype(float)
    scale = norms[pair_candidate_sequence] * norms[pair_reference_sequence]
    similarity = np.divide(dots, scale, out=dots, where=scale != 0).mean(axis=1)
    factor: Any = FACTOR
    if variant == "cider_d":
        bigrams = np.maximum(groups.lengths - 1, 0).astype(float)
        difference = bigrams[pair_candidate_sequence] - bigrams[pair_reference_sequence]
        factor = FACTOR * np.exp(-(difference**2) / (2 * SIGMA**2))
    return np.bincount(pair_candidate, weights=similarity * factor, minlength=len(number)) / number


@dataclass(frozen=True)
class PreparedReferences:
    """Truncated references, image by image; int64 `(images,)`: index of the first caption, and number of captions."""

    captions: WordSequences
    first: np.ndarray
    number: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


class CiderDReward:
    """The reward of self-critical training (Rennie et al., CVPR 2017): CIDEr-D of each sampled caption.

    It works on token ids, not on text, so document frequencies, references and candidates must come from the same
    tokenizer. A caption ends with its first end token, which counts; later tokens do not.

    Args:
        document_frequency: counted on token ids of the training captions, with their end tokens. It defines the end
            token and the ignored tokens; negative ids are also left out.

    Raises:
        ValueError: the document frequencies were counted on text.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan.metrics import CiderDReward, DocumentFrequency
    >>> train = [[[5, 6, 7, 2]], [[5, 8, 9, 2]], [[6, 9, 4, 2]]]  # captions by image, 2 ends a caption
    >>> reward = CiderDReward(DocumentFrequency.from_captions(train, eos_token_id=2))
    >>> references = reward.prepare(train[:2])  # once, then for every batch:
    >>> candidates = torch.tensor([[5, 6, 7, 2], [9, 9, 2, 0], [5, 8, 9, 2], [8, 2, 0, 0]])  # two an image
    >>> reward(candidates, references).round(decimals=2)
    tensor([10.0000,  0.0000, 10.0000,  2.1000], dtype=torch.float64)

    ```
    """

    def __init__(self, document_frequency: DocumentFrequency) -> None:
        if document_frequency.vocabulary is not None:
            raise ValueError("CiderDReward needs document frequencies of token ids; these were counted on text.")
        self.document_frequency = document_frequency
        self.eos_token_id = document_frequency.eos_token_id
        self.ignored_token_ids = document_frequency.ignored_token_ids

    def prepare(self, references: Iterable[Iterable[TokenIds]]) -> PreparedReferences:
        """Prepares the captions of each image (token ids as lists, arrays or tensors) for repeated use."""
        images = [list(image) for image in references]
        for row, image in enumerate(images):
            if not image:
                raise ValueError(f"Image {row} has no references; every image needs at least one.")
        captions = self.cut([caption for image in images for caption in image])
        number = np.fromiter(map(len, images), dtype=np.int64, count=len(images))
        return PreparedReferences(captions, np.cumsum(number) - number, number)

    def __call__(
        self,
        candidate_ids: torch.Tensor,
        references: PreparedReferences | Iterable[Iterable[TokenIds]],
        image_indices: torch.Tensor | np.ndarray | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Scores candidates; equal candidates of an image are scored once.

        Args:
            candidate_ids (`torch.Tensor` of shape `(R, T)`): token ids.
            references: the result of `prepare`, or the unprepared references of B images.
            image_indices: `(R,)`, the index in `references` of each candidate's image. Without it, R must be a multiple
                of B, and the candidates of an image must be next to each other, as `generate` returns them.

        Returns:
            `torch.DoubleTensor` of shape `(R,)` on the device of `candidate_ids`.
        """
        import torch

        if not isinstance(references, PreparedReferences):
            references = self.prepare(references)
        number, num_images = len(candidate_ids), len(references)
        if image_indices is None:
            image_indices = np.repeat(np.arange(num_images), number // num_images)
        images = torch.as_tensor(image_indices).cpu().numpy().astype(np.int64)
        if images.shape != (number,) or (number and not 0 <= images.min() <= images.max() < num_images):
            raise ValueError(f"image_indices must be {number} numbers from 0 to {num_images - 1}.")

        candidates, images, inverse = drop_duplicates(self.cut(candidate_ids), images)
        used, candidate_images = np.unique(images, return_inverse=True)
        reference_images, captions = expand_ranges(references.first[used], references.number[used])
        groups = ScoredGroups(references.captions.take(captions), reference_images, candidates, candidate_images)
        logs = self.document_frequency.log_frequencies(groups.levels)
        scores = cider_scores(groups, logs, self.document_frequency.num_documents)[inverse]
        return torch.from_numpy(scores).to(candidate_ids.device)

    def cut(self, sequences: Any) -> WordSequences:
        return cut_sequences(sequences, self.eos_token_id, self.ignored_token_ids)


def drop_duplicates(candidates: WordSequences, images: np.ndarray) -> tuple[WordSequences, np.ndarray, np.ndarray]:
    """Keeps one of several equal captions of an image, in the order of images; `inverse` maps captions to it."""
    width = int(candidates.lengths.max(initial=0))
    inside = np.arange(width) < candidates.lengths[:, None]
    rows = np.full((len(candidates), 1 + width), -1, dtype=np.int64)
    rows[:, 0] = images
    rows[:, 1:][inside] = candidates.words
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    words = distinct[:, 1:]
    kept = WordSequences(words[words >= 0], (words >= 0).sum(axis=1))
    return kept, distinct[:, 0], inverse.reshape(-1)
