"""The base of the caption metrics: an `evaluate.Metric` that needs no network, and the captions that it scores."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import datasets
import evaluate
import numpy as np

from .document_frequency import DocumentFrequency, check_num_documents
from .ngrams import ScoredGroups, WordSequences
from .tokenization import TokenizerChoice, check_scored, encode_words, tokenize

COCO_CITATION = "Chen et al., Microsoft COCO Captions: Data Collection and Evaluation Server, arXiv:1504.00325, 2015"
INPUTS = """
    predictions: one caption (a string) an image.
    references: for each image the list of its reference captions.
    per_image: also give the value of each image, as lists under "per_image".
"""


class CaptionCorpus:
    """One prediction and one or more references for each of a set of images.

    Args:
        predictions: one caption an image.
        references: one or more captions an image.
        tokenizer: see [`~hf_ngsan.metrics.tokenization.tokenize`].

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


class CaptionMetric(evaluate.Metric):
    """Base of all caption metrics: checked input, the official tokenization, corpus and per-image values.

    Args:
        tokenizer: "ptb" (the default) tokenizes like the COCO evaluation; "words" or "characters" are those of Unicode,
            for other languages than English; an object with `tokenize(list of strings)` may take their place; `None`
            takes text that is tokenized already.
        keep_in_memory: captions stay in memory unless this is `False`; several processes need `False`.
        kwargs: arguments of `evaluate.Metric`.
    """

    summary = ""

    def __init__(self, tokenizer: TokenizerChoice = "ptb", keep_in_memory: bool | None = None, **kwargs: Any) -> None:
        in_memory = kwargs.get("num_process", 1) == 1 if keep_in_memory is None else keep_in_memory
        self.tokenizer: TokenizerChoice = tokenizer
        super().__init__(keep_in_memory=in_memory, **kwargs)

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.summary,
            citation=COCO_CITATION,
            inputs_description=INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.List(datasets.Value("string"))}
            ),
        )

    def compute(
        self,
        *,
        predictions: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Scores predictions against references, or captions that were added before.

        Args:
            predictions: one caption an image.
            references: for each image the list of its captions.
            per_image (`bool`): whether to return the value of each image too, as lists under "per_image".

        Returns:
            Values by names of metrics; with `num_process` above 1 `None` in all processes but the first.

        Raises:
            ValueError: predictions and references do not fit each other, or are not captions.
        """
        added_before = self.writer is not None
        if added_before or self.num_process > 1 or predictions is None or references is None:
            scores = evaluate.Metric.compute(self, predictions=predictions, references=references, **kwargs)
            return cast(dict[str, Any], scores)
        return self.score_captions(predictions, references, **kwargs)  # no need to pass through Arrow

    def add_batch(
        self,
        *,
        predictions: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds predictions and references of several images."""
        check_scored(predictions, references)
        evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def add(
        self,
        *,
        prediction: str | None = None,
        reference: Sequence[str] | None = None,
        predictions: str | None = None,
        references: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds the prediction and the list of references of one image."""
        prediction = predictions if prediction is None else prediction
        reference = references if reference is None else reference
        check_scored([prediction], [reference])
        evaluate.Metric.add(self, prediction=prediction, reference=reference, **kwargs)

    def _compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> dict[str, Any]:
        return self.score_captions(predictions, references, **kwargs)

    def score_captions(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], per_image: bool = False
    ) -> dict[str, Any]:
        """Returns the scores of these captions alone, see `compute`."""
        corpus = CaptionCorpus(predictions, references, self.tokenizer)
        totals, images = self.score_corpus(corpus)
        result: dict[str, Any] = {name: float(value) for name, value in totals.items()}
        if per_image:
            result["per_image"] = {name: np.asarray(values, dtype=float).tolist() for name, values in images.items()}
        return result

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        """Scores a corpus.

        Returns:
            `(totals, images)`: by name of the metric a number, and an array `(images,)` with a value an image.
        """
        raise NotImplementedError
