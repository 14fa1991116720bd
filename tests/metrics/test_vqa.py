"""VQA accuracy: the official normalization of difficult answers, and the accuracy against a loop over people."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics.vqa import answer_scores, normalize_answer, vqa_accuracy
from tests.tables import each_row

TRICKY = {
    **{"The red one.": "red 1", "1,000": "1000", "1,000 people, or more": "1000 people or more", "1, 000": "1 000"},
    **{"red,blue": "red blue", "red, blue": "red blue", "black/white": "black white", "black / white": "black white"},
    **{"t-shirt": "t shirt", "t - shirt": "t shirt", "t-shirt - red": "tshirt red", "it's 3.5": "it's 3.5"},
    **{"3.5.": "3.5", ".5": ".5", "mr. bean": "mr bean", "u.s.": "us", "None": "0"},
    **{"none, ten or Eleven": "0 10 or eleven", "a the an": "", "A an apple": "apple", "dont know": "don't know"},
    **{"Dont": "don't", "its": "its", "Im": "im", "I'dve": "i'dve", "couldntve": "couldntve"},
    **{"couldnt've": "couldn't've", "hed": "he'd", "somebody'd": "somebodyd", "twas": "'twas", "ow'sat": "ow'sat"},
    **{"'ow'sat": "'ow's'at", "yall'll": "y'all'll", "who?what": "who what", "who? what": "who what"},
    **{"50% off!": "50% off", "$5": "$5", "what's up: doc": "what's up: doc", "<b>": "b", "x=y": "x y"},
    **{"e-mail@home": "e mail home", "9:30": "9:30", "tab\tnew\nline": "tab new line", "  two   dogs ": "2 dogs"},
    **{"": "", "." * 40: "." * 8, "1,2 a-b": "12 ab"},
}


@each_row(("answer", "expected"), TRICKY.items())
def test_tricky_answers(answer, expected):
    """The output of the official code for them."""
    assert normalize_answer(answer) == expected


def test_accuracy_by_hand():
    people = ["yes"] * 4 + ["no"] * 5 + ["maybe"]
    assert vqa_accuracy("yes", people) == 1.0
    assert vqa_accuracy("Maybe!", people) == pytest.approx(9 * (1 / 3) / 10)
    assert vqa_accuracy("perhaps", people) == 0
    three = ["two"] * 3 + ["3"] * 7
    assert vqa_accuracy("2", three) == pytest.approx((3 * (2 / 3) + 7) / 10)


def test_where_all_agree_answers_are_compared_as_they_are():
    assert vqa_accuracy("yes ", ["yes"] * 10) == 1.0
    assert vqa_accuracy("Yes", ["yes"] * 10) == 0.0
    assert vqa_accuracy("Yes", ["yes"] * 9 + ["yes."]) == 1.0


def test_the_answer_of_a_classification_is_right_or_wrong():
    assert (vqa_accuracy("true", ["true"]), vqa_accuracy("false", ["true"])) == (1.0, 0.0)
    assert answer_scores(["True"]) == {"true": 1.0}


ANSWERS = st.sampled_from(["a dog", "dog", "2", "two", "Two dogs", "the", ""])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ANSWERS, st.lists(ANSWERS, min_size=2, max_size=10))
def test_accuracy_is_the_mean_over_people_of_the_others_who_agree(answer, people):
    def same(first: str, other: str) -> bool:
        if len({person.strip() for person in people}) == 1:
            return first.strip() == other.strip()
        return normalize_answer(first) == normalize_answer(other)

    total = 0.0
    for left_out in range(len(people)):
        agreeing = sum(same(answer, other) for place, other in enumerate(people) if place != left_out)
        total += min(1.0, agreeing / 3)
    assert vqa_accuracy(answer, people) == pytest.approx(total / len(people))
