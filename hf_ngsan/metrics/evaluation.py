"""The caption metrics as `evaluate.Metric` classes; they need neither a network nor Java."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import datasets
import evaluate
import numpy as np

from .cider import DocumentFrequency, check_num_documents, cider_scores
from .meteor import corpus_statistics, meteor_scores
from .meteor_english import meteor_folder
from .ngrams import ORDER, ScoredGroups, WordSequences, starts_of_runs
from .registry import DEFAULT_METRICS, make_metric
from .tokenization import TokenizerChoice, encode_words, tokenize

# The public scorer adds these two numbers to avoid divisions by 0; they affect the last digits of its results.
SMALL, TINY = 1e-9, 1e-15
BETA = 1.2  # weight of recall against precision in ROUGE-L, as in the COCO evaluation

Scores: TypeAlias = tuple[Mapping[str, float], Mapping[str, np.ndarray]]
"""Corpus value and values of images `(images,)`, by metric."""


class CaptionCorpus:
    """The tokenized prediction and references of each image, and their n-grams with predictions as candidates."""

    def __init__(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], tokenizer: TokenizerChoice = "ptb"
    ) -> None:
        if not len(predictions) or len(predictions) != len(references):
            numbers = f"{len(predictions)} predictions and {len(references)} lists of references"
            raise ValueError(f"There are {numbers}; every image needs one of each.")
        for row, texts in enumerate(references):
            if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"The references of image {row} must be a list of at least one string.")
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

    @cached_property
    def groups(self) -> ScoredGroups:
        sequences, _ = self.encoded
        images, count = np.arange(len(self)), int(self.numbers.sum())
        references = sequences.take(np.arange(count))
        predictions = sequences.take(np.arange(count, len(sequences)))
        return ScoredGroups(references, np.repeat(images, self.numbers), predictions, images)


class CaptionMetric(evaluate.Metric, ABC):
    """Base class of all caption metrics: input checks, official tokenization, corpus and per-image values.

    Args:
        tokenizer: "ptb" (the default) tokenizes like the COCO evaluation. For other languages than English, "words" and
            "characters" use Unicode segmentation, and "words-tr" Turkish lower case. It may also be an object with
            `tokenize(list of strings)`, or `None` for tokenized text.
        kwargs: arguments of `evaluate.Metric`.

    A subclass defines `score_corpus` and `citation`, its paper.
    """

    citation = ""

    def __init__(self, tokenizer: TokenizerChoice = "ptb", **kwargs: Any) -> None:
        self.tokenizer: TokenizerChoice = tokenizer
        super().__init__(**{"keep_in_memory": kwargs.get("num_process", 1) == 1, **kwargs})

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation=self.citation,
            inputs_description=self.compute.__doc__,
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
    ) -> Any:
        """Scores predictions against references, or the captions passed to `add` or `add_batch`.

        Args:
            predictions: one caption per image.
            references: list of captions for each image.
            per_image (`bool`): whether to also return the value of each image, as lists under "per_image".

        Returns:
            Values by metric; with `num_process` above 1, `None` in all processes except the first.

        Raises:
            ValueError: there are no images, the numbers of images differ, or an image has no references.
        """
        if self.writer is None and self.num_process == 1 and predictions is not None and references is not None:
            return self._compute(predictions, references, **kwargs)  # without conversion to Arrow
        return super().compute(predictions=predictions, references=references, **kwargs)

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], per_image: bool = False
    ) -> dict[str, Any]:
        totals, images = self.score_corpus(CaptionCorpus(predictions, references, self.tokenizer))
        result: dict[str, Any] = {name: float(value) for name, value in totals.items()}
        if per_image:
            result["per_image"] = {name: np.asarray(values, dtype=float).tolist() for name, values in images.items()}
        return result

    @abstractmethod
    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        """Returns the corpus values by name, and the values of images, arrays `(images,)`."""


class Bleu(CaptionMetric):
    """BLEU-1 to BLEU-4 (Papineni et al., 2002): `bleu_1` ... `bleu_4`; corpus values use summed counts, not means."""

    citation = "Papineni et al., BLEU: a Method for Automatic Evaluation of Machine Translation, ACL 2002"

    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        totals, images = bleu_scores(corpus.groups)
        names = [f"bleu_{n}" for n in range(1, 5)]
        return dict(zip(names, totals, strict=True)), dict(zip(names, images.T, strict=True))


class RougeL(CaptionMetric):
    """ROUGE-L (Lin, 2004): `rouge_l`, beta 1.2, the mean over images."""

    citation = "Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004"

    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        captions = zip(corpus.predictions, corpus.references, strict=True)
        images = np.array([rouge_l_score(*image_references) for image_references in captions])
        return {"rouge_l": images.mean()}, {"rouge_l": images}


class CiderD(CaptionMetric):
    """CIDEr-D: `cider_d`, the metric that pycocoevalcap and nearly every paper call "CIDEr".

    Eq. 4 of Vedantam et al. (2015): clipped tf-idf vectors, a Gaussian penalty on the difference in length (sigma 6,
    length in bigrams as in the public code), times 10. With `document_frequency=None`, document frequencies come from
    the references of the scored images (at least two), as in pycocoevalcap. Otherwise its frequencies and number of
    documents are used, as in the rewards of self-critical training.

    Args:
        document_frequency: frequencies of another corpus, such as the training captions.
        kwargs: arguments of [`CaptionMetric`].
    """

    variant: Literal["cider_d", "cider"] = "cider_d"
    citation = "Vedantam et al., CIDEr: Consensus-based Image Description Evaluation, CVPR 2015"

    def __init__(self, document_frequency: DocumentFrequency | None = None, **kwargs: Any) -> None:
        self.document_frequency = document_frequency
        super().__init__(**kwargs)

    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        if self.document_frequency is None:
            check_num_documents(len(corpus))
            logs, num_documents = corpus.groups.reference_log_frequencies(), len(corpus)
        else:
            _, vocabulary = corpus.encoded
            logs = self.document_frequency.log_frequencies(corpus.groups.levels, vocabulary)
            num_documents = self.document_frequency.num_documents
        images = cider_scores(corpus.groups, logs, num_documents, self.variant)
        return {self.variant: images.mean()}, {self.variant: images}


class Cider(CiderD):
    """Original CIDEr: `cider`, eq. 2 and 3 of Vedantam et al. (2015). NOT the metric that pycocoevalcap calls "CIDEr".

    The mean, over references and n-gram orders 1 to 4, of the cosine between tf-idf vectors, without clipping and
    length penalty, times 10 as in the authors' public code, so it is between 0 and 10, like CIDEr-D. The paper also
    stems words; this metric does not. Use `CiderD` to compare with published numbers.
    """

    variant = "cider"


class Meteor(CaptionMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English: `meteor`, as in the COCO evaluation.

    Words match if they are equal, have the same stem, are synonyms in WordNet, or are paraphrases. The corpus value
    comes from summed statistics; it is not the mean of the images' values. The data come from pycocoevalcap (extra
    `eval`). The first use indexes its paraphrase table in the cache of `datasets`: 53 MB, 15 seconds of CPU time.

    Raises:
        FileNotFoundError: pycocoevalcap is missing.

    Example:

    ```python
    >>> from hf_ngsan.metrics import Meteor
    >>> scores = Meteor().compute(predictions=["a man rides"], references=[["a man riding"]])
    >>> round(scores["meteor"], 4)
    0.8286

    ```
    """

    citation = "Denkowski and Lavie, Meteor Universal: Language Specific Translation Evaluation, WMT 2014"

    def __init__(self, **kwargs: Any) -> None:
        meteor_folder()
        super().__init__(**kwargs)

    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        statistics = corpus_statistics(corpus.predictions, corpus.references)
        return {"meteor": float(meteor_scores(statistics.sum(axis=0)))}, {"meteor": meteor_scores(statistics)}


class CaptionMetrics(CaptionMetric):
    """All caption metrics in one call, tokenized once.

    Args:
        document_frequency: for `cider_d` and `cider`; `None` uses the frequencies of the references, like
            pycocoevalcap.
        metrics: metrics to compute: "cider_d", "bleu", "rouge_l", "cider", "meteor" (needs the extra `eval`), and those
            of [`register_metric`].
        kwargs: arguments of [`CaptionMetric`].

    Example:

    ```python
    >>> from hf_ngsan.metrics import CaptionMetrics
    >>> scores = CaptionMetrics().compute(
    ...     predictions=["a cat on a mat", "two dogs run"],
    ...     references=[["a cat sits on a mat"], ["two dogs are running", "dogs run on grass"]],
    ... )
    >>> sorted(scores)
    ['bleu_1', 'bleu_2', 'bleu_3', 'bleu_4', 'cider', 'cider_d', 'rouge_l']

    ```

    `cider_d` is the metric that pycocoevalcap calls "CIDEr"; `cider` is the original formula (see `Cider`).

    Raises:
        ValueError: an unknown metric; from `compute`: invalid captions, or a single image without `document_frequency`.
    """

    DEFAULT = DEFAULT_METRICS

    def __init__(
        self, document_frequency: DocumentFrequency | None = None, metrics: Sequence[str] = DEFAULT, **kwargs: Any
    ) -> None:
        if "meteor" in metrics and str(kwargs.get("tokenizer")).startswith(("words", "characters")):
            raise ValueError("METEOR supports English only; leave it out.")
        self.parts = list(map(make_metric, metrics))
        for part in self.parts:
            if isinstance(part, CiderD) and part.document_frequency is None:  # a registered metric may have its own
                part.document_frequency = document_frequency
        self.citation = "\n".join(dict.fromkeys(part.citation for part in self.parts))
        super().__init__(**kwargs)

    def score_corpus(self, corpus: CaptionCorpus) -> Scores:
        totals: dict[str, float] = {}
        images: dict[str, np.ndarray] = {}
        for part in self.parts:
            part_totals, part_images = part.score_corpus(corpus)
            if same := totals.keys() & part_totals.keys():
                raise ValueError(f"Two metrics return a score with the name {min(same)}; rename one of them.")
            totals |= part_totals
            images |= part_images
        return totals, images


def bleu_scores(groups: ScoredGroups) -> tuple[np.ndarray, np.ndarray]:
    """Returns BLEU of a corpus and of its images, float64 `(4,)` and `(images, 4)`; each image has one candidate.

    The brevity penalty uses the reference with the closest length to the prediction, and the shorter one in a tie.
    """
    # n-grams of each candidate that occur in its references, clipped to the largest count in one reference
    is_shared = groups.shared_numbers > 0
    entries, starts = groups.candidate_entries[is_shared], groups.shared_starts[is_shared]
    matches = np.zeros((len(groups.images), ORDER))
    if len(entries):
        # The largest count from each start to its end: every second reduction between all bounds.
        bounds = np.stack([starts, starts + groups.shared_numbers[is_shared]], axis=1).reshape(-1)
        most = np.maximum.reduceat(np.append(groups.counts[groups.reference_entries], 0), bounds)[::2]
        places = groups.sequences[entries], groups.orders[entries]
        np.add.at(matches, places, np.minimum(groups.counts[entries], most))
    matches = matches[groups.candidates]
    lengths = groups.lengths[groups.candidates]
    guesses = np.maximum(lengths[:, None] - np.arange(ORDER), 0)

    images, reference_lengths = groups.images[groups.references], groups.lengths[groups.references]
    order = np.lexsort((reference_lengths, np.abs(reference_lengths - lengths[images]), images))
    closest = reference_lengths[order][starts_of_runs(images[order])]

    per_image = combine_orders(matches, guesses, lengths, closest)
    corpus = combine_orders(matches.sum(0), guesses.sum(0), lengths.sum(), closest.sum())
    return corpus, per_image


def combine_orders(
    matches: np.ndarray, guesses: np.ndarray, length: np.ndarray, reference_length: np.ndarray
) -> np.ndarray:
    """Returns BLEU-1 to BLEU-4, float64 `(..., 4)`, from counts `(..., 4)` and lengths `(...)`."""
    precision = (matches + TINY) / (guesses + SMALL)
    bleu = np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, ORDER + 1))
    ratio = (length + TINY) / (reference_length + SMALL)
    penalty = np.exp(np.minimum(1 - 1 / ratio, 0))
    return bleu * np.asarray(penalty)[..., None]


def rouge_l_score(prediction: str, references: Sequence[str]) -> float:
    """Returns the F-measure of the best precision and recall over the tokenized references of an image.

    Words are split at plain spaces only, as in the public scorer: "1 1/2", which the tokenizer writes with a no-break
    space, is one word here and two in BLEU and CIDEr.
    """
    if not prediction:
        return 0.0  # the public scorer returns 1 if a reference is empty, too
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
    """Returns the length of the longest common subsequence (Hyyro, 2004); `positions` has a bit for each position."""
    everything = (1 << length) - 1
    open_columns = everything
    for word in words:
        matches = positions.get(word)
        if matches:
            matches &= open_columns
            open_columns = (open_columns + matches | open_columns - matches) & everything
    return length - open_columns.bit_count()
