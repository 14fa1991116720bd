"""Swapped boxes make the opposite relation true; the score of a captioner is how often it states this relation."""

import numpy as np
import pytest

from hf_ngsan.data.scenes import Statement, load_scenes
from hf_ngsan.data.scenes.scoring import answers_by_object, relation_swaps, score_swaps, true_relation


@pytest.fixture(scope="module")
def rows():
    return list(load_scenes("test", size=300, test=200, seed=11))


def test_the_other_relation_is_true_after_a_swap(rows):
    groups = set()
    for row in rows:
        for swap in relation_swaps(row):
            groups.add(swap.prompt.group)
            statement = Statement.parse(swap.prompt.caption)
            assert swap.answer in statement.family.relations and swap.answer != statement.relation
            answers = answers_by_object({"objects": row["objects"], "visual_boxes": swap.boxes})
            for subject, other in (("white square", statement.other), (statement.subject, statement.subject)):
                assert true_relation(Statement(subject, statement.relation, other), row["objects"], answers) is None
            assert true_relation(statement, row["objects"], answers) == swap.answer
            changed = (swap.boxes != np.asarray(row["visual_boxes"], np.float32)).any(1)
            assert changed.sum() == 2 and changed[row["objects"].index(statement.subject)]
    assert groups == {"symmetric", "directional"}


def test_scores_of_an_oracle_and_of_one_that_never_changes_its_mind(rows):
    swaps = [swap for row in rows for swap in relation_swaps(row)]
    before = [swap.prompt.caption for swap in swaps]
    after = [f"{swap.prompt.text} {swap.answer} the blue square" for swap in swaps]
    for actual in score_swaps(swaps, before, after).values():
        assert actual["follow"] == actual["changed"] == 1
    for actual in score_swaps(swaps, before, before).values():
        assert actual["follow"] == actual["changed"] == 0
    same = score_swaps(swaps, after, after)
    assert sum(actual["swaps"] for actual in same.values()) == len(swaps)
    assert all((actual["follow"], actual["changed"]) == (1, 0) for actual in same.values())
