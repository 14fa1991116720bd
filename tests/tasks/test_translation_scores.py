"""SacreBLEU's scores, and the signatures that tell how they were made."""

import math

import pytest
import sacrebleu

from hf_ngsan.tasks.translation import score_translations
from tests.tables import each_row

REFERENCES = ["the cat sat on the mat .", "a dog runs fast through the park ."]
PREDICTIONS = ["the cat sat on a mat .", "a dog runs through the park ."]


def test_bleu_by_hand():
    """Matches of 1- to 4-grams: 13/14, 9/12, 5/10, 2/8; brevity penalty of 14 words against 15."""
    precisions = [13 / 14, 9 / 12, 5 / 10, 2 / 8]
    expected = 100 * math.exp(1 - 15 / 14) * math.prod(precisions) ** 0.25
    assert score_translations(PREDICTIONS, REFERENCES).scores["bleu"] == pytest.approx(expected)


def test_perfect_translations_and_signatures():
    found = score_translations(REFERENCES, REFERENCES)
    assert found.scores == pytest.approx({"bleu": 100, "chrf": 100})
    for name, parts in (("bleu", {"nrefs:1", "case:mixed", "tok:13a"}), ("chrf", {"nrefs:1", "nc:6"})):
        assert parts | {f"version:{sacrebleu.__version__}"} <= set(found.signatures[name].split("|"))


@each_row("predictions", [[], ["a"]])
def test_every_translation_needs_a_reference(predictions):
    with pytest.raises(ValueError, match=str(len(REFERENCES))):
        score_translations(predictions, REFERENCES)
