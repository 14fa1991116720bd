"""Scores of translations by SacreBLEU, each with its signature, which describes the computation."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

SCORES = ("bleu", "chrf")


class TranslationScores(NamedTuple):
    """Scores of a corpus, from 0 to 100, and SacreBLEU's signature of each."""

    scores: dict[str, float]
    signatures: dict[str, str]


def score_translations(predictions: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Scores translations, each against one reference: BLEU (Papineni et al. 2002) and chrF (Popovic 2015).

    Texts are detokenized; SacreBLEU (Post 2018) tokenizes both sides alike (13a), and case counts.

    Raises:
        ValueError: no translations, or another number of references.
    """
    if not predictions or len(predictions) != len(references):
        raise ValueError(
            f"There are {len(predictions)} translations and {len(references)} references; give one reference each."
        )
    scores, signatures = {}, {}
    for name, metric in zip(SCORES, (BLEU(), CHRF()), strict=True):
        scores[name] = metric.corpus_score(list(predictions), [list(references)]).score
        signatures[name] = str(metric.get_signature())
    return TranslationScores(scores, signatures)
