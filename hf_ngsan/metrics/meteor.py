"""METEOR 1.5 (Denkowski and Lavie, 2014) for English, as the COCO evaluation runs it, without Java."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from .meteor_alignment import EXACT, PARAPHRASE, STEM, SYNONYM, Aligner, PreparedCaption
from .meteor_resources import Lexicon, Paraphrases, meteor_folder
from .meteor_words import split_words

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
"""Of the matches of each stage."""
STAGES = (EXACT, STEM, SYNONYM, PARAPHRASE)

LENGTHS, FUNCTION_WORDS = slice(0, 2), slice(2, 4)
MATCHES = slice(4, 20)
CHUNKS = 20
MATCHED = slice(21, 23)
"""Parts of a segment's statistics, in the order in which the program prints them. Pairs are of caption and reference;
matches are, for each stage, the content words of both and the function words of both."""


class MeteorScorer:
    """Scores tokenized captions against references.

    Raises:
        MeteorDataMissing: pycocoevalcap is missing.
    """

    def __init__(self) -> None:
        folder = meteor_folder()
        self.lexicon = Lexicon(folder)
        self.aligner = Aligner(self.lexicon, Paraphrases(folder))

    def prepare(self, captions: Sequence[str]) -> list[PreparedCaption]:
        """Prepares captions; a reference that is used again needs it once."""
        return self.aligner.prepare([split_words(caption, self.lexicon) for caption in captions])

    def statistics(
        self, captions: Sequence[PreparedCaption], references: Sequence[Sequence[PreparedCaption]]
    ) -> np.ndarray:
        """Returns the statistics of each caption with the reference where it scores best, float64 `(captions, 23)`."""
        number = np.array([len(of_caption) for of_caption in references])
        pairs = ((caption, one) for caption, those in zip(captions, references, strict=True) for one in those)
        found = np.array([self.pair_statistics(caption, reference) for caption, reference in pairs])
        owners = np.repeat(np.arange(len(number)), number)
        order = np.lexsort((-meteor_scores(found), owners))  # stable: the first of several best
        return found[order[np.cumsum(number) - number]]

    def pair_statistics(self, caption: PreparedCaption, reference: PreparedCaption) -> list[float]:
        function_words = self.lexicon.function_words
        in_caption = [word in function_words for word in caption.words]
        in_reference = [word in function_words for word in reference.words]
        matches = [0] * 16
        chunks = matched = matched_reference = 0
        end = reference_end = -1
        for start, length, place, width, stage in self.aligner.align(caption, reference):
            function, of_reference = sum(in_caption[start : start + length]), sum(in_reference[place : place + width])
            matches[4 * stage] += length - function
            matches[4 * stage + 1] += width - of_reference
            matches[4 * stage + 2] += function
            matches[4 * stage + 3] += of_reference
            chunks += (start, place) != (end, reference_end)
            end, reference_end = start + length, place + width
            matched += length
            matched_reference += width
        lengths = [len(in_caption), len(in_reference), sum(in_caption), sum(in_reference)]
        return [*lengths, *matches, chunks, matched, matched_reference]


@cache
def shared_scorer() -> MeteorScorer:
    """Returns the scorer of this process, whose data take a second to read."""
    return MeteorScorer()


def corpus_statistics(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the statistics of tokenized captions, float64 `(images, 23)`."""
    scorer = shared_scorer()
    predictions = [
        text.replace("|||", "") for text in predictions
    ]  # the mark of the program, which its wrapper takes out
    references = [[text.replace("|||", "") for text in captions] for captions in references]
    texts = list(dict.fromkeys(text for captions in (predictions, *references) for text in captions))
    prepared = dict(zip(texts, scorer.prepare(texts), strict=True))
    return scorer.statistics(
        [prepared[text] for text in predictions], [[prepared[text] for text in captions] for captions in references]
    )


def meteor_scores(statistics: np.ndarray) -> np.ndarray:
    """Returns METEOR of segments with these statistics, `(…, 23)`, float64 `(…)`.

    Eq. 1 to 4 of Denkowski and Lavie (2011): the weighted harmonic mean of precision and recall, in which function
    words count 1/4 and content words 3/4, less the penalty of fragmentation. A caption that matches the whole reference
    in one chunk has no penalty.
    """
    return scores_of(whole_segments_without_chunks(statistics))


def corpus_meteor(statistics: np.ndarray) -> float:
    """Returns METEOR of a corpus with these statistics of its segments, `(segments, 23)`."""
    return float(scores_of(whole_segments_without_chunks(statistics).sum(axis=0)))


def whole_segments_without_chunks(statistics: np.ndarray) -> np.ndarray:
    statistics = np.array(statistics, dtype=float)
    whole = (statistics[..., CHUNKS] == 1) & (statistics[..., MATCHED] == statistics[..., LENGTHS]).all(axis=-1)
    statistics[..., CHUNKS][whole] = 0
    return statistics


def scores_of(statistics: np.ndarray) -> np.ndarray:
    lengths, function = statistics[..., LENGTHS], statistics[..., FUNCTION_WORDS]
    matches = statistics[..., MATCHES].reshape(*statistics.shape[:-1], len(STAGES), 2, 2)  # stage, kind, side
    weighted = np.einsum("...skw,s,k->...w", matches, WEIGHTS, np.array([DELTA, 1 - DELTA]))
    possible = DELTA * (lengths - function) + (1 - DELTA) * function
    precision, recall = np.moveaxis(divide(weighted, possible), -1, 0)
    mean = divide(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    matched = statistics[..., MATCHED].mean(axis=-1)
    return mean * (1 - GAMMA * divide(statistics[..., CHUNKS], matched) ** BETA)


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator > 0)
