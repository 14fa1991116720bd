import pytest

from hf_ngsan.data import extra_scores_of, load_data, relation_prompts
from hf_ngsan.data.scenes.relations import FAMILY_OF

SCORES = extra_scores_of("scenes")


@pytest.fixture(scope="module")
def rows():
    return load_data("scenes:size=10,test=40,seed=4", "test")


def compute(rows, captions, answer):
    """The scores of a captioner that finishes a prompt with `answer(prompt, number of the question)`."""
    asked = []

    def complete(indices, prefixes):
        asked.extend(zip(indices, prefixes, strict=True))
        prompts = [prompt for row in rows.select(sorted(set(indices))) for prompt in relation_prompts(row)]
        return [f"{prompt.text} {answer(prompt, number)}" for number, prompt in enumerate(prompts)]

    return SCORES.compute(rows, captions, complete), asked


def test_every_prompt_of_every_row_is_asked_once_and_in_order(rows):
    _, asked = compute(rows, ["a cat"] * len(rows), lambda prompt, number: prompt.answer)
    assert asked == [(index, prompt.text) for index, row in enumerate(rows) for prompt in relation_prompts(row)]


def test_a_captioner_that_is_always_right(rows):
    right = [row["captions"][0] for row in rows]
    scores, _ = compute(rows, right, lambda prompt, number: f"{prompt.answer} the black square")
    assert scores == {"objects": 1.0, "symmetric": 1.0, "directional": 1.0}
    assert tuple(scores) == SCORES.names


def test_shares_are_counted_by_group(rows):
    """Every second answer is the other relation of its family; half of the captions name no object."""

    def answer(prompt, number):
        (other,) = set(FAMILY_OF[prompt.answer].relations) - {prompt.answer}
        return other if number % 2 else prompt.answer

    captions = [row["captions"][0] if index % 2 else "a cat" for index, row in enumerate(rows)]
    scores, _ = compute(rows, captions, answer)
    groups = [prompt.group for row in rows for prompt in relation_prompts(row)]
    for group in ("symmetric", "directional"):
        numbers = [number for number, name in enumerate(groups) if name == group]
        assert scores[group] == sum(number % 2 == 0 for number in numbers) / len(numbers)
    assert scores["objects"] == 0.5


def test_rows_need_neither_features_nor_boxes(rows):
    few = rows.remove_columns(["visual_features", "visual_boxes"]).select(range(2))
    scores, _ = compute(few, [""] * 2, lambda prompt, number: "")
    assert scores == {"objects": 0.0, "symmetric": 0.0, "directional": 0.0}
