"""METEOR 1.5 (Denkowski and Lavie, 2014) for English, as in the COCO evaluation, without Java.

First, all matches of a caption and a reference are found: the same word, the same stem, a synonym, or a paraphrase of
several words (Denkowski and Lavie, 2011, section 2). Then a beam search over the words of the reference chooses
non-overlapping matches that cover the most words, in the fewest chunks. The released program differs from its
description in two details, inferred from its output, which change scores:

- Coverage is counted in words of weight 1 for the same word and 1/2 for paraphrases, truncated to an integer on each
  side. Stems and synonyms count 0, so that one with an alternative is left out if it opens a chunk.
- In a tie, the program prefers the alignment in which the skipped matches have the smallest distance of their first
  words, not the one in which the chosen matches do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from .meteor_english import Lexicon, Paraphrases, meteor_folder, split_words, stem

BEAM_SIZE = 40
EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
CHUNK, COVERED = 2**20, 2**40
"""Units of a path's rank: a covered word outweighs any number of chunks, and a chunk outweighs any distance."""
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # weights of the matches of each stage

LENGTHS, FUNCTION_WORDS = slice(0, 2), slice(2, 4)
MATCHES = slice(4, 20)
CHUNKS = 20
MATCHED = slice(21, 23)
"""Parts of a segment's statistics, in the order of the program's output. Pairs are (caption, reference); matches have,
for each stage, the content words of both and the function words of both."""


class WordMatch(NamedTuple):
    """A match of words in a caption and a reference."""

    start: int
    length: int
    reference_start: int
    reference_length: int
    stage: int


Path: TypeAlias = "tuple[int, int, int, int, WordMatch | None, Path | None]"
"""A partial alignment in the beam search, as a plain tuple for speed:

0. its rank (lower is better): finished chunks and distances of skipped matches, minus covered words;
1. the word of the caption after the open chunk, -1 if none is open;
2. the word of the reference after the last match;
3. bits of the aligned words of the caption;
4. the last match, and 5. the path before it.
"""
rank_of = itemgetter(0)


@dataclass(frozen=True)
class PreparedCaption:
    """A caption in the form for the aligner; phrases in the paraphrase table are (first word, length, number)."""

    words: tuple[str, ...]
    phrases: list[tuple[int, int, int]]
    synsets: dict[str, frozenset[str]]  # synsets of the words that have some
    word_places: dict[str, list[int]] = field(init=False, default_factory=dict)
    stem_places: dict[str, list[int]] = field(init=False, default_factory=dict)
    phrase_places: dict[int, list[tuple[int, int]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for place, word in enumerate(self.words):
            self.word_places.setdefault(word, []).append(place)
            self.stem_places.setdefault(stem(word), []).append(place)
        for start, length, phrase in self.phrases:
            self.phrase_places.setdefault(phrase, []).append((start, length))


def unrivalled(matches_by_place: list[list[WordMatch]], words: int) -> set[int]:
    """Returns the words of the reference that start a match without an overlapping other match."""
    caption, reference = [0] * words, [0] * len(matches_by_place)
    for matches in matches_by_place:
        for start, length, place, width, _ in matches:
            for word in range(start, start + length):
                caption[word] += 1
            for word in range(place, place + width):
                reference[word] += 1
    certain = set()
    for matches in matches_by_place:
        if len(matches) == 1:
            start, length, place, width, _ = matches[0]
            if max(caption[start : start + length]) == max(reference[place : place + width]) == 1:
                certain.add(place)
    return certain


def choose_matches(matches_by_place: list[list[WordMatch]], certain: set[int]) -> list[WordMatch]:
    """Chooses matches by a beam search over the reference; matches at `certain` words are always chosen."""
    paths: list[Path] = [(0, -1, 0, 0, None, None)]
    for place, matches in enumerate(matches_by_place):
        longer: list[Path] = []
        for path in paths:
            rank, end, reference_end, used, last, before = path
            if place < reference_end:
                longer.append(path)
                continue
            passed_over = rank
            for match in matches:
                start, length, _, width, stage = match
                words = ((1 << length) - 1) << start
                if used & words:
                    continue
                covered = 2 if stage == EXACT else length // 2 + width // 2
                longer_rank = passed_over - covered * COVERED + (0 if end < 0 or end == start else CHUNK)
                longer.append((longer_rank, start + length, place + width, used | words, match, path))
                passed_over += abs(start - place)
            if place not in certain:
                closed = passed_over + CHUNK if end >= 0 else passed_over
                longer.append((closed, -1, reference_end, used, last, before))
        longer.sort(key=rank_of)
        paths = longer[:BEAM_SIZE]
    best: Path | None = min(paths, key=lambda path: path[0] + (CHUNK if path[1] >= 0 else 0))
    alignment = []
    while best is not None and best[4] is not None:
        alignment.append(best[4])
        best = best[5]
    return alignment[::-1]


class MeteorScorer:
    """Aligns tokenized captions with references and scores them; raises a FileNotFoundError without pycocoevalcap."""

    def __init__(self) -> None:
        folder = meteor_folder()
        self.lexicon, self.paraphrases = Lexicon(folder), Paraphrases(folder)

    def prepare(self, captions: Sequence[str]) -> list[PreparedCaption]:
        """Prepares captions for repeated use."""
        words_of = [split_words(caption, self.lexicon) for caption in captions]
        phrases_of = self.paraphrases.phrases_of(words_of)
        synsets_of = self.lexicon.synsets_of
        return [
            PreparedCaption(tuple(words), phrases, {word: synsets for word in words if (synsets := synsets_of(word))})
            for words, phrases in zip(words_of, phrases_of, strict=True)
        ]

    def statistics(
        self, captions: Sequence[PreparedCaption], references: Sequence[Sequence[PreparedCaption]]
    ) -> np.ndarray:
        """Returns the statistics of each caption with its best reference, float64 `(captions, 23)`."""
        number = np.array(list(map(len, references)))
        images = zip(captions, references, strict=True)
        pairs = ((caption, reference) for caption, references in images for reference in references)
        statistics = np.array([self.pair_statistics(*pair) for pair in pairs])
        owners = np.repeat(np.arange(len(number)), number)
        order = np.lexsort((-meteor_scores(statistics), owners))  # stable: the first of several best
        return statistics[order[np.cumsum(number) - number]]

    def align(self, caption: PreparedCaption, reference: PreparedCaption) -> list[WordMatch]:
        """Returns the matches of the alignment, in the order of the reference."""
        matches = self.find_matches(caption, reference)
        return choose_matches(matches, unrivalled(matches, len(caption.words)))

    def find_matches(self, caption: PreparedCaption, reference: PreparedCaption) -> list[list[WordMatch]]:
        """Returns all matches by their first word in the reference, in the order of the search."""
        by_place: list[list[WordMatch]] = []
        for place, word in enumerate(reference.words):
            same = caption.word_places.get(word, ())
            matches = [WordMatch(start, 1, place, 1, EXACT) for start in same]
            for start in caption.stem_places.get(stem(word), ()):
                if start not in same:
                    matches.append(WordMatch(start, 1, place, 1, STEM))
            if synsets := reference.synsets.get(word):
                others = (other for other, ids in caption.synsets.items() if not synsets.isdisjoint(ids))
                places = sorted(start for other in others if other != word for start in caption.word_places[other])
                matches += [WordMatch(start, 1, place, 1, SYNONYM) for start in places]
            by_place.append(matches)
        paraphrases_of = self.paraphrases.paraphrases_of
        for place, length, phrase in sorted(reference.phrases):
            paraphrases = paraphrases_of(phrase)
            for shared in sorted(caption.phrase_places.keys() & paraphrases.keys(), key=paraphrases.__getitem__):
                for start, width in caption.phrase_places[shared]:
                    by_place[place].append(WordMatch(start, width, place, length, PARAPHRASE))
        for start, width, phrase in sorted(caption.phrases):
            paraphrases = paraphrases_of(phrase)
            for shared in sorted(reference.phrase_places.keys() & paraphrases.keys(), key=paraphrases.__getitem__):
                for place, length in reference.phrase_places[shared]:
                    by_place[place].append(WordMatch(start, width, place, length, PARAPHRASE))
        return by_place

    def pair_statistics(self, caption: PreparedCaption, reference: PreparedCaption) -> list[float]:
        function_words = self.lexicon.function_words
        in_caption = [word in function_words for word in caption.words]
        in_reference = [word in function_words for word in reference.words]
        matches = [0] * 16
        chunks = matched = matched_reference = 0
        end = reference_end = -1
        for start, length, place, width, stage in self.align(caption, reference):
            function = sum(in_caption[start : start + length])
            reference_function = sum(in_reference[place : place + width])
            matches[4 * stage] += length - function
            matches[4 * stage + 1] += width - reference_function
            matches[4 * stage + 2] += function
            matches[4 * stage + 3] += reference_function
            chunks += (start, place) != (end, reference_end)
            end, reference_end = start + length, place + width
            matched += length
            matched_reference += width
        if chunks == 1 and matched == len(in_caption) and matched_reference == len(in_reference):
            chunks = 0  # no penalty of fragmentation
        lengths = [len(in_caption), len(in_reference), sum(in_caption), sum(in_reference)]
        return [*lengths, *matches, chunks, matched, matched_reference]


@cache
def shared_scorer() -> MeteorScorer:
    """Returns the scorer of this process; reading its data takes a second."""
    return MeteorScorer()


def corpus_statistics(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the statistics of tokenized captions, float64 `(images, 23)`."""
    scorer = shared_scorer()
    # "|||" is a separator of the program, which its wrapper removes.
    predictions = [text.replace("|||", "") for text in predictions]
    references = [[text.replace("|||", "") for text in captions] for captions in references]
    texts = list(dict.fromkeys(text for captions in (predictions, *references) for text in captions))
    prepared = dict(zip(texts, scorer.prepare(texts), strict=True))
    known = [[prepared[text] for text in captions] for captions in references]
    return scorer.statistics([prepared[text] for text in predictions], known)


def meteor_scores(statistics: np.ndarray) -> np.ndarray:
    """Returns METEOR, float64 `(…)`, for segment statistics `(…, 23)`, or for a corpus from their sum.

    Eq. 1 to 4 of Denkowski and Lavie (2011): the weighted harmonic mean of precision and recall, in which function
    words count 1/4 and content words 3/4, minus the fragmentation penalty.
    """
    lengths, function = statistics[..., LENGTHS], statistics[..., FUNCTION_WORDS]
    matches = statistics[..., MATCHES].reshape(*statistics.shape[:-1], 4, 2, 2)  # stage, kind, side
    weighted = np.einsum("...skw,s,k->...w", matches, WEIGHTS, np.array([DELTA, 1 - DELTA]))
    possible = DELTA * (lengths - function) + (1 - DELTA) * function
    precision, recall = np.moveaxis(divide(weighted, possible), -1, 0)
    mean = divide(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    matched = statistics[..., MATCHED].mean(axis=-1)
    return mean * (1 - GAMMA * divide(statistics[..., CHUNKS], matched) ** BETA)


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator > 0)
