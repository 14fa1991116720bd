import pytest

from hf_ngsan.data import load_data, relation_prompts, score_relation_completions
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
