"""Predictions with their references, prepared once for all metrics."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .document_frequency import DocumentFrequency, check_num_documents
from .groups import ScoredGroups
from .ngrams import WordSequences
from .text import TokenizerChoice, check_scored, encode_words, tokenize


class CaptionCorpus:
    """One prediction and one or more references for each of a set of images.

    Args:
        predictions: one caption an image.
        references: one or more captions an image.
        tokenizer: see `hf_ngsan.metrics.text.tokenize`.

    Attributes:
        predictions (`list[str]`), references (`list[list[str]]`): the tokenized text.
        groups (`ScoredGroups`): the n-grams of the text, with predictions as candidates.
        vocabulary (`tuple[str]`): the words behind the numbers in `groups`.

    Raises:
        ValueError: no image, different numbers of predictions and references, an image without references, or something
            that is not a string.
    """

    def __init__(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], tokenizer: TokenizerChoice = "ptb"
    ) -> None:
        check_scored(predictions, references)
        if not len(predictions):
            raise ValueError("There is nothing to score: the list of predictions is empty.")
        self.numbers = np.array([len(image) for image in references])
        flat = tokenize([reference for image in references for reference in image], tokenizer)
        ends = np.cumsum(self.numbers).tolist()
        self.references = [flat[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        self.predictions = tokenize(list(predictions), tokenizer)

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def encoded(self) -> tuple[WordSequences, tuple[str, ...]]:
        flat = [reference for image in self.references for reference in image]
        return encode_words([*flat, *self.predictions])

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return self.encoded[1]

    @cached_property
    def groups(self) -> ScoredGroups:
        sequences, _ = self.encoded
        images, count = np.arange(len(self)), int(self.numbers.sum())
        references = sequences.take(np.arange(count))
        predictions = sequences.take(np.arange(count, len(sequences)))
        return ScoredGroups(references, np.repeat(images, self.numbers), predictions, images)

    def log_frequencies(self, document_frequency: DocumentFrequency | None = None) -> tuple[np.ndarray, int]:
        """Returns document frequencies of the n-grams in `groups` and the number of documents behind them.

        Args:
            document_frequency: by default the references are counted.

        Returns:
            `(log_frequencies, num_documents)`, as `cider_scores` takes them.

        Raises:
            ValueError: the references are those of a single image, and `document_frequency` is None.
        """
        if document_frequency is None:
            check_num_documents(len(self))
            return self.groups.reference_log_frequencies(), len(self)
        logs = document_frequency.log_frequencies(self.groups.levels, self.vocabulary)
        return logs, document_frequency.num_documents
