"""Captions grouped by image: references and the candidates to be scored against them, with their n-grams."""

import numpy as np

from .document_frequency import count_documents
from .ngrams import WordSequences, count_ngrams, starts_of_runs


class ScoredGroups:
    """Reference and candidate captions of a set of images as one table of n-grams.

    Args:
        references, reference_images: the references and the image of each, int64 `(references,)`, in non-decreasing
            order.
        candidates, candidate_images: the same of candidates; every image of a candidate needs a reference.

    Attributes:
        images, lengths: int64 `(sequences,)`. Sequences are numbered image by image, an image's references before its
            candidates.
        references, candidates: int64, the numbers of the reference and candidate sequences, in the order given.
        levels (`list[NGramLevel]`): the n-grams of all captions by order.
        ngrams, sequences, counts, orders: int64 `(E,)`, the entries of all levels one after another: which n-gram
            (numbered through all levels), in which sequence, how often, and the level it belongs to (from 0).
        candidate_entries (`(C,)`), reference_entries: int64, the entries of candidates and those of references.
        shared_starts, shared_numbers: int64 `(C,)`: the references that share n-gram and image with a candidate entry
            stand in `reference_entries[start : start + number]`.
    """

    def __init__(
        self,
        references: WordSequences,
        reference_images: np.ndarray,
        candidates: WordSequences,
        candidate_images: np.ndarray,
    ) -> None:
        images = np.concatenate([reference_images, candidate_images])
        by_image = np.argsort(images, kind="stable")
        place = np.empty_like(by_image)
        place[by_image] = np.arange(len(by_image))
        sequences = (references + candidates).take(by_image)
        self.images = images[by_image]
        self.lengths = sequences.lengths
        self.references, self.candidates = place[: len(references)], place[len(references) :]

        self.levels = count_ngrams(sequences)
        sizes = [len(level.words) for level in self.levels]
        offsets = np.cumsum([0, *sizes])
        self.ngrams = np.concatenate([level.ngrams + o for level, o in zip(self.levels, offsets[:-1], strict=True)])
        self.sequences = np.concatenate([level.sequences for level in self.levels])
        self.counts = np.concatenate([level.counts for level in self.levels])
        self.orders = np.repeat(np.arange(len(self.levels)), [len(level.ngrams) for level in self.levels])
        self.num_ngrams = int(offsets[-1])
        self.find_shared()

    def find_shared(self) -> None:
        """Finds the references that share an n-gram with each entry of a candidate."""
        is_candidate = np.zeros(len(self.images), dtype=bool)
        is_candidate[self.candidates] = True
        of_candidate = is_candidate[self.sequences]
        self.candidate_entries = np.flatnonzero(of_candidate)
        self.reference_entries = np.flatnonzero(~of_candidate)
        # Entries come in the order of (n-gram, sequence), so those of one n-gram and one image stand together.
        runs = np.cumsum(starts_of_runs(self.ngrams) | starts_of_runs(self.images[self.sequences])) - 1
        numbers = np.bincount(runs[self.reference_entries], minlength=int(runs[-1]) + 1 if len(runs) else 0)
        candidate_runs = runs[self.candidate_entries]
        self.shared_starts = (np.cumsum(numbers) - numbers)[candidate_runs]
        self.shared_numbers = numbers[candidate_runs]

    def reference_log_frequencies(self) -> np.ndarray:
        """Returns the logarithm of each n-gram's document frequency among these references, 0 where it has none."""
        entries = self.reference_entries
        counts = count_documents(self.ngrams[entries], self.images[self.sequences[entries]], self.num_ngrams)
        return np.log(np.maximum(counts, 1))
