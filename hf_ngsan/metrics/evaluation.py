"""The caption metrics as `evaluate.Metric` classes that need no network, and but for SPICE no Java."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .caption_metric import CaptionCorpus, CaptionMetric
from .comparison import Comparison, compare, holm
from .document_frequency import DocumentFrequency
from .formulas import bleu_scores, cider_scores, rouge_l_scores
from .java import JavaMeteor, Spice
from .meteor import corpus_meteor, corpus_statistics, meteor_scores
from .meteor_resources import meteor_folder


class Bleu(CaptionMetric):
    """BLEU-1 to BLEU-4: `bleu_1` ... `bleu_4`. The corpus value comes from summed counts, not from a mean."""

    summary = "BLEU-1 to BLEU-4 (Papineni et al., 2002), equal to the COCO evaluation."

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        totals, images = bleu_scores(corpus.groups)
        names = [f"bleu_{n}" for n in range(1, 5)]
        return dict(zip(names, totals, strict=True)), dict(zip(names, images.T, strict=True))


class RougeL(CaptionMetric):
    """ROUGE-L: `rouge_l`, beta 1.2, the mean over images."""

    summary = "ROUGE-L (Lin, 2004), equal to the COCO evaluation."

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        images = rouge_l_scores(corpus.predictions, corpus.references)
        return {"rouge_l": images.mean()}, {"rouge_l": images}


class TfIdfMetric(CaptionMetric):
    """Base of CIDEr and CIDEr-D.

    Args:
        document_frequency: frequencies of another corpus, such as the training captions.
        kwargs: arguments of `CaptionMetric`.
    """

    variant: Literal["cider_d", "cider"]

    def __init__(self, document_frequency: DocumentFrequency | None = None, **kwargs: Any) -> None:
        self.document_frequency = document_frequency
        super().__init__(**kwargs)

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        logs, num_documents = corpus.log_frequencies(self.document_frequency)
        images = cider_scores(corpus.groups, logs, num_documents, self.variant)
        return {self.variant: images.mean()}, {self.variant: images}


class CiderD(TfIdfMetric):
    """CIDEr-D: `cider_d`, the number that pycocoevalcap and nearly every paper call "CIDEr".

    Eq. 4 of Vedantam et al. (2015): clipped tf-idf vectors, a Gaussian penalty on the difference in length (sigma 6,
    length counted in bigrams as the public code does), times 10. With `document_frequency=None` the references of the
    scored images give the frequencies, as in pycocoevalcap; with one, its frequencies and its number of documents are
    used, as the rewards of self-critical training do.

    Args:
        document_frequency: frequencies of another corpus, such as the training captions.

    Raises:
        ValueError: (from `compute`) a single image and no `document_frequency`.
    """

    variant = "cider_d"
    summary = 'CIDEr-D (Vedantam et al., 2015, eq. 4): what pycocoevalcap calls "CIDEr".'


class Cider(TfIdfMetric):
    """Plain CIDEr: `cider`, eq. 2 and 3 of Vedantam et al. (2015). NOT the number that pycocoevalcap calls "CIDEr".

    The mean over references and over n-gram orders 1 to 4 of the cosine between tf-idf vectors, without clipping and
    length penalty, times 10 as in the public code of the authors, so it lies between 0 and 10 as CIDEr-D does. The
    paper also stems words before; this does not. Use `CiderD` to compare with published numbers.

    Args:
        document_frequency: frequencies of another corpus, such as the training captions.
    """

    variant = "cider"
    summary = "CIDEr by its plain formula (Vedantam et al., 2015, eq. 2 and 3), times 10."


class Meteor(CaptionMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English: `meteor`, as the COCO evaluation runs it.

    Matches are of the same word, the same stem, synonyms of WordNet and paraphrases. The corpus value comes from summed
    statistics; it is not the mean of the images' values. The data are those of pycocoevalcap (extra `eval`); the first
    use indexes its table of paraphrases in the cache of `datasets`: 53 MB, 15 seconds of processor time.

    Args:
        backend: "python", or "java" for the official program; both give the same values.

    Raises:
        MeteorDataMissing: pycocoevalcap is missing.
        JavaMetricUnavailable: Java is missing, with `backend="java"`.
        ValueError: an unknown backend.

    Example:

    ```python
    >>> from hf_ngsan.metrics import Meteor
    >>> scores = Meteor().compute(predictions=["a man rides"], references=[["a man riding"]])
    >>> round(scores["meteor"], 4)
    0.8286

    ```
    """

    summary = "METEOR 1.5 (Denkowski and Lavie, 2014), equal to the COCO evaluation."

    def __init__(self, backend: Literal["python", "java"] = "python", **kwargs: Any) -> None:
        if backend not in ("python", "java"):
            raise ValueError(f"METEOR has no backend {backend!r}; choose python or java.")
        self.backend = backend
        meteor_folder()
        super().__init__(**kwargs)
        self.program = JavaMeteor(**kwargs) if backend == "java" else None

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        if self.program is not None:
            return self.program.score_corpus(corpus)
        statistics = corpus_statistics(corpus.predictions, corpus.references)
        return {"meteor": corpus_meteor(statistics)}, {"meteor": meteor_scores(statistics)}


class CaptionMetrics(CaptionMetric):
    """All caption metrics in one call, tokenized once.

    Args:
        document_frequency: for `cider_d` and `cider`; `None` takes the frequencies of the references, as pycocoevalcap
            does.
        metrics: which to compute, of "cider_d", "bleu", "rouge_l", "cider", "meteor", "spice". The last two are left
            out by default: METEOR needs the extra `eval`, SPICE also Java.

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

    `cider_d` is what pycocoevalcap calls "CIDEr"; `cider` is the plain formula (see `Cider`).

    Raises:
        ValueError: an unknown metric; (from `compute`) bad captions, or a single image without `document_frequency`.
    """

    DEFAULT = ("cider_d", "bleu", "rouge_l", "cider")
    OPTIONAL = ("meteor", "spice")
    summary = "BLEU, ROUGE-L, CIDEr-D and CIDEr of captions, equal to the COCO evaluation."

    def __init__(
        self, document_frequency: DocumentFrequency | None = None, metrics: Sequence[str] = DEFAULT, **kwargs: Any
    ) -> None:
        unknown = [name for name in metrics if name not in self.DEFAULT + self.OPTIONAL]
        if unknown:
            raise ValueError(f"Unknown metric {unknown[0]!r}; choose from {', '.join(self.DEFAULT + self.OPTIONAL)}.")
        if "meteor" in metrics and kwargs.get("tokenizer") in ("words", "characters"):
            raise ValueError("METEOR has stems, synonyms and paraphrases of English only; leave it out.")
        self.document_frequency = document_frequency
        self.metrics = tuple(metrics)
        super().__init__(**kwargs)
        self.parts = [self.make_part(name) for name in self.metrics]

    def make_part(self, name: str) -> CaptionMetric:
        weighted = {"cider_d": CiderD, "cider": Cider}
        if name in weighted:
            return weighted[name](self.document_frequency)
        return {"bleu": Bleu, "rouge_l": RougeL, "meteor": Meteor, "spice": Spice}[name]()

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        totals: dict[str, float] = {}
        images: dict[str, np.ndarray] = {}
        for part in self.parts:
            part_totals, part_images = part.score_corpus(corpus)
            totals |= part_totals
            images |= part_images
        return totals, images


@dataclass(frozen=True)
class ComparedScore:
    """A metric of two systems on the same images.

    Attributes:
        first, second: the values of the corpus.
        comparison: of the values of the images, those of the first minus those of the second.
        p_holm: its p value, corrected for the number of metrics.
    """

    first: float
    second: float
    comparison: Comparison
    p_holm: float


def compare_captions(
    metric: CaptionMetric, first: Sequence[str], second: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, ComparedScore]:
    """Compares the captions of two systems by a paired bootstrap over images (see [`compare`]).

    Args:
        metric: such as [`CaptionMetrics`].
        first, second: one caption an image of each system.
        references: for each image the list of its captions.

    Returns:
        The comparison by name of the metric. The mean difference over images is not that of the corpus values where
        these are no means: BLEU and METEOR.

    Raises:
        ValueError: captions do not fit the references, or there are fewer than 20 images.
    """
    one, other = (metric.compute(predictions=those, references=references, per_image=True) for those in (first, second))
    images = [scores.pop("per_image") for scores in (one, other)]
    found = {name: compare(np.subtract(images[0][name], images[1][name])) for name in one}
    corrected = holm([comparison.p_value for comparison in found.values()])
    return {
        name: ComparedScore(one[name], other[name], comparison, p_holm)
        for (name, comparison), p_holm in zip(found.items(), corrected, strict=True)
    }
