"""Spatial relations between two boxes, in families of two exclusive answers, and the sentences that state them.

Every relation is decided by scale- and translation-invariant geometry. With centre distances `dx`, `dy` and mean
sizes `w = (w_i + w_j) / 2`, `h = (h_i + h_j) / 2` of two boxes, the *symmetric* group needs only `|dx| / w`, `|dy| / h`
and the size ratios, which eq. 8 of Guo et al. 2020 determines; the *directional* group needs the sign of `dx` or `dy`,
which eq. 8 drops. Between the two answers of a family lies a wide margin in which the pair counts as ambiguous.
"""

import re
from dataclasses import dataclass

import numpy as np

COLOURS = ("red", "green", "blue", "yellow", "purple", "black")
SHAPES = ("circle", "square", "triangle", "star")

SYMMETRIC, DIRECTIONAL = "symmetric", "directional"


@dataclass(frozen=True)
class Family:
    """Two relations that exclude each other, and the participle that announces them in a sentence."""

    name: str
    group: str
    participle: str
    relations: tuple[str, str]


FAMILIES = (
    Family("distance", SYMMETRIC, "kept", ("near", "far from")),
    Family("contact", SYMMETRIC, "placed", ("overlapping", "inside")),
    Family("size", SYMMETRIC, "drawn", ("larger than", "smaller than")),
    Family("axis", SYMMETRIC, "standing", ("beside", "stacked with")),
    Family("horizontal", DIRECTIONAL, "lying", ("left of", "right of")),
    Family("vertical", DIRECTIONAL, "hanging", ("above", "below")),
)
FAMILY_OF = {relation: family for family in FAMILIES for relation in family.relations}

FIRST, SECOND, AMBIGUOUS = 0, 1, -1

NEAR, FAR = 1.7, 3.0  # centre distance in mean sizes
SIZE_RATIO = 1.5
ADJACENT = 2.2  # how far apart two objects are still beside or stacked with each other, in mean sizes
ALIGNED = 0.4  # the largest |dy| / |dx| of objects beside each other
TOUCHING = 0.75  # a centre distance in mean sizes at which boxes overlap with certainty
STICKS_OUT, CONTAINED = 0.25, -0.1  # part of the smaller box beyond the larger one's edge


def answer_families(boxes):
    """Decide every family for every ordered pair of boxes.

    Args:
        boxes: array `(..., N, 4)` of `x1, y1, x2, y2`, in any unit.

    Returns:
        A dict from family name to an int8 array `(..., N, N)`, indexed by subject and object: 0 where the family's
        first relation holds, 1 where the second does, -1 where neither clearly does.
    """
    boxes = np.asarray(boxes, dtype=np.float64)
    sizes = boxes[..., 2:] - boxes[..., :2]
    centres = (boxes[..., 2:] + boxes[..., :2]) / 2
    own, other = sizes[..., :, None, :], sizes[..., None, :, :]
    offset = centres[..., :, None, :] - centres[..., None, :, :]
    mean_size = (own + other) / 2
    distance = np.abs(offset) / mean_size
    across, down = distance[..., 0], distance[..., 1]
    straight = np.hypot(across, down)
    apart = distance.max(axis=-1) >= 1
    smaller = np.minimum(own, other)
    sticking_out = ((np.abs(offset) + smaller / 2 - np.maximum(own, other) / 2) / smaller).max(axis=-1)
    contained = (np.abs(offset) + own / 2 - other / 2) / own
    ratio = own / other
    adjacent = apart & (np.maximum(across, down) <= ADJACENT)

    def decide(first, second):
        return np.where(first, FIRST, np.where(second, SECOND, AMBIGUOUS)).astype(np.int8)

    return {
        "distance": decide(apart & (straight <= NEAR), straight >= FAR),
        "contact": decide(
            (distance.max(axis=-1) <= TOUCHING) & (sticking_out >= STICKS_OUT),
            (contained <= CONTAINED).all(axis=-1),
        ),
        "size": decide((ratio >= SIZE_RATIO).all(axis=-1), (ratio <= 1 / SIZE_RATIO).all(axis=-1)),
        "axis": decide(adjacent & (down <= ALIGNED * across), adjacent & (across <= ALIGNED * down)),
        "horizontal": decide((across >= 1) & (offset[..., 0] < 0), (across >= 1) & (offset[..., 0] > 0)),
        "vertical": decide((down >= 1) & (offset[..., 1] < 0), (down >= 1) & (offset[..., 1] > 0)),
    }


def state(subject, relation, object):
    """Caption stating that `subject` is in `relation` to `object`, e.g. `a blue square with a red circle lying left of
    it`. Both objects and the family (by its participle) come before the relation, so that a prefix can ask for it."""
    return f"{ask(subject, FAMILY_OF[relation], object)} {relation} it"


def ask(subject, family, object):
    """The prefix of a caption up to the relation, e.g. `a blue square with a red circle lying`."""
    return f"a {object} with a {subject} {family.participle}"


_MENTION = re.compile(rf"\b({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})\b")
_RELATION = re.compile(rf"\b({'|'.join(sorted(FAMILY_OF, key=len, reverse=True))})\b")


@dataclass(frozen=True)
class Statement:
    """`subject` is in `relation` to `object`; the objects are named by colour and shape."""

    subject: str
    relation: str
    object: str


def parse_statement(caption):
    """The statement of a caption, or None unless it names exactly two objects and one relation.

    Understood are `a OBJECT with a SUBJECT … RELATION it` and `the SUBJECT is RELATION the OBJECT`.
    """
    caption = " ".join(caption.lower().split())
    mentions = list(_MENTION.finditer(caption))
    relations = list(_RELATION.finditer(caption))
    if len(mentions) != 2 or len(relations) != 1:
        return None
    first, second = (mention.group() for mention in mentions)
    position = relations[0].start()
    if position < mentions[0].start() or first == second:
        return None
    if position > mentions[1].start():
        return Statement(subject=second, relation=relations[0].group(), object=first)
    return Statement(subject=first, relation=relations[0].group(), object=second)
