import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.data.scenes import COLOURS, FAMILIES, SHAPES, Statement
from hf_ngsan.data.scenes.relations import AMBIGUOUS, FAMILY_OF, FIRST, SECOND, SYMMETRIC, answer_families
from tests.tables import each_row

SQUARE = [10, 10, 20, 20]


@each_row(
    ("box", "relations"),
    [
        *[([10, 24, 20, 34], {"near", "stacked with", "below"}), ([24, 10, 34, 20], {"near", "beside", "right of"})],
        *[([-4, 11, 6, 21], {"near", "beside", "left of"}), ([9, -8, 21, 4], {"near", "stacked with", "above"})],
        ([70, 80, 90, 100], {"far from", "larger than", "right of", "below"}),
        ([-40, 12, -36, 16], {"far from", "smaller than", "left of"}),
        *[([13, 13, 17, 17], {"inside", "smaller than"}), ([15, 10, 25, 20], {"overlapping"})],
        *[([4, 4, 26, 26], {"larger than"}), ([10, 10, 20, 20], set())],
        ([22, 22, 32, 32], {"near", "right of", "below"}),
    ],
)
def test_the_relations_of_a_box_to_a_square(box, relations):
    answers = answer_families(box, SQUARE)
    stated = {family.relations[answers[family.name]] for family in FAMILIES if answers[family.name] != AMBIGUOUS}
    assert stated == relations


sizes = st.floats(1, 10)
offsets = st.floats(-60, 60)


@st.composite
def boxes(draw):
    (x, y), (width, height) = draw(st.tuples(offsets, offsets)), draw(st.tuples(sizes, sizes))
    return np.array([x - width, y - height, x + width, y + height])


def mirrored(box, axis):
    result = box.copy()
    result[[axis, axis + 2]] = -box[[axis + 2, axis]]
    return result


@given(boxes(), boxes())
def test_symmetric_relations_do_not_see_a_mirror_and_directional_ones_turn_round_in_it(subject, other):
    answers = answer_families(subject, other)
    swap = {FIRST: SECOND, SECOND: FIRST, AMBIGUOUS: AMBIGUOUS}
    for axis, turned in ((0, "horizontal"), (1, "vertical")):
        seen = answer_families(mirrored(subject, axis), mirrored(other, axis))
        for family in FAMILIES:
            expected = swap[int(answers[family.name])] if family.name == turned else answers[family.name]
            assert seen[family.name] == expected


@given(boxes(), boxes())
def test_symmetric_relations_follow_from_equation_8_and_nothing_else(subject, other):
    """Boxes rebuilt only from |dx| / w_i, |dy| / h_i, w_i / w_j and h_i / h_j have the same symmetric relations."""
    centre, size = (subject[:2] + subject[2:]) / 2, subject[2:] - subject[:2]
    other_centre, other_size = (other[:2] + other[2:]) / 2, other[2:] - other[:2]
    distance, ratio = np.abs(other_centre - centre) / size, size / other_size
    rebuilt = np.concatenate([distance - 1 / ratio / 2, distance + 1 / ratio / 2])
    answers, seen = answer_families(subject, other), answer_families([-0.5, -0.5, 0.5, 0.5], rebuilt)
    nudged = [answer_families(subject * scale, other) for scale in (1 - 1e-9, 1 + 1e-9)]
    for family in FAMILIES:
        on_a_threshold = any(near[family.name] != answers[family.name] for near in nudged)
        if family.group == SYMMETRIC and not on_a_threshold:
            assert seen[family.name] == answers[family.name]


names = st.builds("{} {}".format, st.sampled_from(COLOURS), st.sampled_from(SHAPES))


@given(names, st.sampled_from(sorted(FAMILY_OF)), names)
def test_captions_are_short_and_parsed_back(subject, relation, other):
    statement = Statement(subject, relation, other)
    assert Statement.parse(statement.caption) == statement
    assert statement.caption.startswith(statement.prompt)
    assert relation not in statement.prompt
    assert len(statement.prompt.split()) == 4
    assert len(statement.caption.split()) <= 9
    assert Statement.parse(f"  {statement.caption.upper()} . ") == statement
    assert Statement.parse(f"the {subject} is {relation} the {other}") == statement


@each_row(
    "caption",
    [
        "",
        "a man riding a horse",
        "the red circle lies left of",
        "the red circle and the blue square",
        "left of the red circle the blue square",
        "the red circle lies left of the blue square near the green star",
        "the red circle lies left of and stays near the blue square",
        "the red circlet lies left of the blue square",
    ],
)
def test_captions_that_state_no_single_relation(caption):
    assert Statement.parse(caption) is None
