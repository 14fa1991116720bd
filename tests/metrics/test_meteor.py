"""METEOR in Python: outputs of the official program for small cases, and the program itself if Java is installed."""

import pytest

from hf_ngsan.metrics import Meteor
from hf_ngsan.metrics import meteor as module
from hf_ngsan.metrics.meteor import EXACT, PARAPHRASE, STEM, SYNONYM
from hf_ngsan.metrics.meteor_english import split_words, stem
from tests.metrics.conftest import load_benchmark


@pytest.fixture
def scorer(small_meteor):
    return module.shared_scorer()


def test_alignments_are_those_of_the_program(scorer):
    cases = {  # caption, reference: first words of the matches and their stages
        ("a man rides", "a man riding"): [(0, 0, EXACT), (1, 1, EXACT), (2, 2, STEM)],
        ("rode", "driving"): [(0, 0, SYNONYM)],
        ("man", "person"): [(0, 0, PARAPHRASE)],
        ("rides", "riding"): [],  # stem and synonym compete, so neither counts
        ("rides a", "a riding"): [(1, 0, EXACT)],  # it would open a chunk
        ("a rides dogs", "a riding dog"): [(0, 0, EXACT), (1, 1, STEM), (2, 2, STEM)],
        ("rides dogs", "riding dog"): [],
        ("qa", "qa qa"): [(0, 1, EXACT)],
        ("qa qa", "qa"): [(0, 0, EXACT)],
        ("qx qa", "qa qa"): [(1, 0, EXACT)],
        ("qb qc qb", "qc qb qc"): [(0, 1, EXACT), (1, 2, EXACT)],
        ("qb qb qa qa qb", "qa qb qa"): [(3, 0, EXACT), (4, 1, EXACT), (2, 2, EXACT)],
        ("qa qb cat", "cat cat qa qb"): [(2, 0, EXACT), (0, 2, EXACT), (1, 3, EXACT)],
        ("a little boy boy using the road his bike and port a", "a a little boy riding his bike helmets"): [
            *[(11, 0, EXACT), (0, 1, EXACT), (1, 2, EXACT), (2, 3, EXACT), (5, 4, PARAPHRASE)],
            *[(7, 5, EXACT), (8, 6, EXACT)],
        ],
    }
    for (caption, reference), expected in cases.items():
        item, other = scorer.prepare([caption, reference])
        actual = [(match.start, match.reference_start, match.stage) for match in scorer.align(item, other)]
        assert actual == expected, (caption, reference)


def test_scores_are_those_of_the_program(scorer):
    cases = {
        **{("a man rides", "a man riding"): 0.8285714285714284, ("cat x", "cat y"): 0.2},
        **{("cat cat", "cat"): 0.3478260869565218, ("qb qc qb", "qc qb qc"): 0.3184464413482169},
        **{("rides a", "a riding"): 0.1, ("a cat", "a cat"): 1.0, ("man", "person"): 0.6, ("", "x"): 0.0},
        **{("x", ""): 0.0, ("", ""): 0.0},
    }
    for (caption, reference), expected in cases.items():
        item, other = scorer.prepare([caption, reference])
        scores = module.meteor_scores(scorer.statistics([item], [[other]]))
        assert scores == pytest.approx([expected], abs=1e-12), caption
    item, *others = scorer.prepare(["cat x", "dog", "cat y", "cat x"])
    statistics = scorer.statistics([item, item], [others, others[:2]])  # the best of several references is used
    assert module.meteor_scores(statistics) == pytest.approx([1, 0.2], abs=1e-12)
    assert module.meteor_scores(statistics.sum(axis=0)) == pytest.approx(0.3887662972078962, abs=1e-12)


def test_scoring_keeps_no_table_that_grows(scorer):
    def sizes():
        parts = (scorer, scorer.lexicon, scorer.paraphrases)
        return [len(value) for part in parts for value in vars(part).values() if isinstance(value, dict)]

    before = sizes()
    scorer.statistics(scorer.prepare(["a man rode"]), [scorer.prepare(["driving a cat", "a person"])])
    assert sizes() == before


def test_words_are_those_of_the_program(scorer):
    cases = {
        "Hello, World! it's 3,000.50": ["hello", ",", "world", "!", "it", "'s", "3,000.50"],
        "U.S. e.g. Mr. Smith's co-op.": ["us", "eg", "mr.", "smith", "'s", "co", "op", "."],
        **{"man 's ca n't": ["man", "'", "s", "ca", "n", "'t"], "no. 5": ["no", ".", "5"], "No. 5": ["no.", "5"]},
        "on blvd.": ["on", "blvd", "."],
        "1\xa01/2 日本 ÉCOLE": ["1", "1", "/", "2", "日", "本", "école"],
        "“x” ``y'' -lrb- a–b --": ['"', "x", '"', '"', "y", '"', "-lrb-", "a", "-", "b", "-"],
        **{"jack-o-lantern": ["jack", "o-lantern"], "wait ... what": ["wait", "...", "what"], "\xa0": []},
    }
    for text, expected in cases.items():
        assert split_words(text, scorer.lexicon) == expected, text


def test_stems_are_those_of_snowball_before_its_third_version():
    stems = {"added": "ad", "geologist": "geologist", "skies": "sky", "dying": "die", "running": "run"}
    stems |= {
        "generically": "generic",
        "hopeful": "hope",
        "ties": "tie",
        "happily": "happili",
        "a": "a",
        "news": "news",
    }
    stems |= {"caresses": "caress", "agreed": "agre", "luxuriated": "luxuri", "adjustment": "adjust"}
    assert {word: stem(word) for word in stems} == stems


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"hf-ngsan\[eval\]"):
        Meteor()


@pytest.mark.slow
def test_values_are_those_of_the_evaluation(metric_reference):
    for name in ("noisy", "shuffled", "human"):
        expected = metric_reference.read(f"scores_val_{name}")
        references = metric_reference.captions("val_human_refs" if name == "human" else "val")
        results = {row["image_id"]: row["caption"] for row in metric_reference.read(f"predictions_val_{name}")}
        captions = {"predictions": [results[i] for i in references], "references": list(references.values())}
        scores = Meteor().compute(**captions, per_image=True)
        assert scores["meteor"] == pytest.approx(expected["corpus"]["METEOR"], abs=1e-12), name
        images = [expected["per_image"][str(i)]["METEOR"] for i in references]
        assert scores["per_image"]["meteor"] == pytest.approx(images, abs=1e-12), name


@pytest.mark.slow
def test_edited_captions_against_the_program(java, metric_reference):
    benchmark = load_benchmark("meteor")
    inputs = benchmark.edited_captions(str(metric_reference.captions_path("train")), 2000, 1, 8)
    ours = Meteor(tokenizer=None).compute(predictions=inputs[0], references=inputs[1], per_image=True)
    theirs = benchmark.official_scores(*inputs)
    assert ours["meteor"] == pytest.approx(theirs[0], abs=1e-9)
    assert ours["per_image"]["meteor"] == pytest.approx(theirs[1], abs=1e-9)
