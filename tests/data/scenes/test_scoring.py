import pytest

from hf_ngsan.data import (
    extra_scores_of,
    load_data,
    relation_prompts,
    score_relation_completions,
    score_relations,
)
from hf_ngsan.data.scenes import LANDMARK, Statement
from hf_ngsan.data.scenes.relations import FAMILY_OF
from tests.data.facts import fails_naming
from tests.tables import each_row


@pytest.fixture(scope="module")
def rows():
    return list(load_data("scenes:size=10,test=150,seed=4", "test"))


def flipped(caption):
    statement = Statement.parse(caption)
    (other,) = set(statement.family.relations) - {statement.relation}
    return Statement(statement.subject, other, statement.other).caption


def test_true_captions_are_all_right_and_flipped_ones_wrong(rows):
    for place in range(5):
        report = score_relations([row["captions"][place] for row in rows], rows)
        assert report["symmetric"] == report["directional"] == report["coverage"] == 1
        assert report["symmetric_count"] + report["directional_count"] == len(rows)
    report = score_relations([flipped(row["captions"][0]) for row in rows], rows)
    assert report["symmetric"] == report["directional"] == 0 and report["coverage"] == 1
    report = score_relations([], [])
    assert report["symmetric"] is report["directional"] is None and report["coverage"] == 0


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


def test_completions_that_do_not_answer_are_wrong_and_not_covered(rows):
    completions = [["", "a cat", "lefty of", "is", "the the the"] for _ in rows]
    report = score_relation_completions(completions, rows)
    assert report["symmetric"] == report["directional"] == report["coverage"] == 0


def test_always_the_same_answer_is_right_half_of_the_time(rows):
    for index in (0, 1):
        constant = [[FAMILY_OF[prompt.answer].relations[index] for prompt in relation_prompts(row)] for row in rows]
        report = score_relation_completions(constant, rows)
        for group in ("symmetric", "directional"):
            assert abs(report[group] - 0.5) < 4.5 * 0.5 / report[f"{group}_count"] ** 0.5


def test_the_families_add_up_to_the_groups(rows):
    completions = [
        [prompt.answer if place % 2 else "no" for place, prompt in enumerate(relation_prompts(row))] for row in rows
    ]
    report = score_relation_completions(completions, rows)
    directional = [report["families"][name] for name in ("horizontal", "vertical")]
    right = sum(family["accuracy"] * family["count"] for family in directional)
    assert report["directional"] == pytest.approx(right / report["directional_count"])
    assert report["directional_count"] == sum(family["count"] for family in directional)


def test_what_cannot_be_scored_lowers_the_coverage_only(rows):
    predictions = [row["captions"][0] for row in rows]
    absent = Statement("red circle", "left of", f"white {LANDMARK}").caption.replace("white", "blue")
    row = next(row for row in rows if f"blue {LANDMARK}" not in row["objects"])
    report = score_relations([*predictions, absent, "", "a man on a horse"], [*rows, row, row, row])
    assert report["symmetric"] == report["directional"] == 1
    assert report["coverage"] == pytest.approx(len(rows) / (len(rows) + 3))


def test_an_undecided_relation_is_not_scored():
    row = {
        "objects": ["red circle", f"blue {LANDMARK}"],
        "visual_boxes": [[0.1, 0.1, 0.2, 0.2], [0.12, 0.5, 0.22, 0.6]],
        "captions": [],
    }
    report = score_relations(["the red circle lies left of the blue square"], [row])
    assert report["coverage"] == 0 and report["directional"] is None
    assert score_relations(["the red circle hangs above the blue square"], [row])["directional"] == 1


def test_chance_in_free_captions_is_the_share_of_true_ones(rows):
    """Saying one relation of every object of every scene is right as often as the reported chance says."""
    statements = [
        (Statement(name, "near", next(o for o in row["objects"] if o.endswith(LANDMARK))).caption, row)
        for row in rows
        for name in row["objects"]
        if not name.endswith(LANDMARK)
    ]
    report = score_relations([caption for caption, _ in statements], [row for _, row in statements])
    one_scene_each = score_relations([caption for caption, _ in statements[:1]] * len(rows), rows)
    assert 0.3 < report["symmetric"] < 0.7
    assert one_scene_each["symmetric_chance"] == pytest.approx(report["symmetric"], abs=0.1)


def test_prompts_end_before_the_relation(rows):
    for row in rows:
        for prompt, caption in zip(relation_prompts(row), row["captions"], strict=True):
            assert prompt.caption == caption
            assert caption.startswith(f"{prompt.text} {prompt.answer} the ")
            assert prompt.answer in FAMILY_OF and FAMILY_OF[prompt.answer].name == prompt.family
            assert prompt.group in ("symmetric", "directional")


@each_row(
    ("call", "facts"),
    [
        (lambda rows: score_relations(["a"], rows), ["1 rows", "150 rows"]),
        (lambda rows: score_relation_completions([["a"]] * 150, rows), ["row 0", "5 texts"]),
    ],
)
def test_wrong_input_is_an_error(rows, call, facts):
    with fails_naming(*facts):
        call(rows)


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


def test_rows_need_neither_features_nor_boxes(few_rows):
    few = few_rows.remove_columns(["visual_features", "visual_boxes"]).select(range(2))
    scores, _ = compute(few, [""] * 2, lambda prompt, number: "")
    assert scores == {"objects": 0.0, "symmetric": 0.0, "directional": 0.0}
