import pytest

from hf_ngsan.data import (
    extra_scores_of,
    load_data,
    relation_prompts,
    score_relation_completions,
)
from hf_ngsan.data.scenes import Statement
from hf_ngsan.data.scenes.relations import FAMILY_OF
from tests.data.facts import fails_naming


@pytest.fixture(scope="module")
def rows():
    return list(load_data("scenes:size=10,test=150,seed=4", "test"))


def flipped(caption):
    statement = Statement.parse(caption)
    (other,) = set(statement.family.relations) - {statement.relation}
    return Statement(statement.subject, other, statement.other).caption


def test_true_and_flipped_completions(rows):
    true = score_relation_completions([row["captions"] for row in rows], rows)
    mere = score_relation_completions([[prompt.answer for prompt in relation_prompts(row)] for row in rows], rows)
    assert mere == true
    assert true["symmetric"] == true["directional"] == true["coverage"] == 1
    assert (true["symmetric_count"], true["directional_count"]) == (3 * len(rows), 2 * len(rows))
    assert true["symmetric_chance"] == true["directional_chance"] == 0.5
    false = score_relation_completions([list(map(flipped, row["captions"])) for row in rows], rows)
    assert false["symmetric"] == false["directional"] == 0
    assert false["coverage"] == 1


def test_captions_of_others_have_no_prompts():
    with fails_naming("'a dog'"):
        relation_prompts({"captions": ["a dog"]})


def test_prompts_end_before_the_relation(rows):
    for row in rows:
        for prompt, caption in zip(relation_prompts(row), row["captions"], strict=True):
            assert prompt.caption == caption
            assert caption.startswith(f"{prompt.text} {prompt.answer} the ")
            assert prompt.answer in FAMILY_OF and FAMILY_OF[prompt.answer].name == prompt.family
            assert prompt.group in ("symmetric", "directional")


@pytest.fixture(scope="module")
def few_rows():
    return load_data("scenes:size=10,test=40,seed=4", "test")


def compute(rows, captions, answer):
    """The scores of a captioner that finishes a prompt with `answer(prompt, number of the question)`."""
    asked = []

    def complete(indices, prefixes):
        asked.extend(zip(indices, prefixes, strict=True))
        prompts = [prompt for row in rows.select(sorted(set(indices))) for prompt in relation_prompts(row)]
        return [f"{prompt.text} {answer(prompt, number)}" for number, prompt in enumerate(prompts)]

    return extra_scores_of("scenes").compute(rows, captions, complete), asked


def test_every_prompt_of_every_row_is_asked_once_and_in_order(few_rows):
    _, asked = compute(few_rows, ["a cat"] * len(few_rows), lambda prompt, number: prompt.answer)
    assert asked == [(index, prompt.text) for index, row in enumerate(few_rows) for prompt in relation_prompts(row)]


def test_shares_are_counted_by_group(few_rows):
    """Every second answer is the other relation of its family; half of the captions name no object."""

    def answer(prompt, number):
        (other,) = set(FAMILY_OF[prompt.answer].relations) - {prompt.answer}
        return other if number % 2 else prompt.answer

    captions = [row["captions"][0] if index % 2 else "a cat" for index, row in enumerate(few_rows)]
    scores, _ = compute(few_rows, captions, answer)
    groups = [prompt.group for row in few_rows for prompt in relation_prompts(row)]
    for group in ("symmetric", "directional"):
        numbers = [number for number, name in enumerate(groups) if name == group]
        assert scores[group] == sum(number % 2 == 0 for number in numbers) / len(numbers)
    assert scores["objects"] == 0.5 and tuple(scores) == extra_scores_of("scenes").names
