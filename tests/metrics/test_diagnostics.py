from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics.diagnostics import BAD_ENDINGS, caption_diagnostics

from .plain import ngrams


def test_a_broken_captioner_shows():
    broken = caption_diagnostics(["A man with a.", "a a man man on a", "a dog on the dog on the", "..."])
    healthy = caption_diagnostics(["a man rides a horse", "two dogs play", "the red bus stops", "fruit in a bowl."])
    assert (broken["bad_endings"], healthy["bad_endings"]) == (0.75, 0)
    assert (broken["empty"], healthy["empty"]) == (0.25, 0)
    assert (broken["stutter"], healthy["stutter"]) == (0.25, 0)
    assert (broken["repeated_2_grams"], broken["repeated_3_grams"], broken["repeated_4_grams"]) == (0.25, 0.25, 0)
    assert broken["distinct_1"] < healthy["distinct_1"]
    assert broken["length_histogram"] == {0: 1, 4: 1, 6: 1, 7: 1}
    assert broken["mean_length"] == 17 / 4


def test_vocabulary():
    result = caption_diagnostics(["a cat", "a cat"])
    assert (result["vocabulary_size"], result["distinct_captions"]) == (2, 0.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "cat", "on", "with", "dog"]), max_size=7), min_size=1, max_size=5))
def test_numbers_equal_their_definitions(captions):
    result = caption_diagnostics([" ".join(words) for words in captions], tokenizer=None)
    for n in (1, 2):
        actual = [g for words in captions for g in ngrams(words, n)]
        assert result[f"distinct_{n}"] == (len(set(actual)) / len(actual) if actual else 0)
    for n in (2, 3, 4):
        repeated = [len(set(ngrams(words, n))) < len(ngrams(words, n)) for words in captions]
        assert result[f"repeated_{n}_grams"] == sum(repeated) / len(captions)
    endings = [bool(words) and words[-1] in BAD_ENDINGS for words in captions]
    assert result["bad_endings"] == sum(endings) / len(captions)
    assert sum(result["length_histogram"].values()) == result["num_captions"] == len(captions)
