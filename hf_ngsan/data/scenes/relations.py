"""Spatial relations between two boxes, in families of two exclusive answers, and their sentences in English and
Chinese.

Every relation depends on scale- and translation-invariant geometry. With the distances `dx`, `dy` of the centres of two
boxes and the means `w`, `h` of their widths and heights, the *symmetric* group needs only `|dx| / w`, `|dy| / h` and
the ratios of the sizes, which follow from eq. 8 of Guo et al. 2020; the *directional* group needs the sign of `dx` or
`dy`, which eq. 8 drops. The answers of a family are separated by a wide margin, in which a pair is ambiguous.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

COLOURS = ("red", "green", "blue", "yellow", "purple", "black")
LANDMARK = "square"
SHAPES = ("circle", "triangle", "star", LANDMARK)

SYMMETRIC, DIRECTIONAL = "symmetric", "directional"
FIRST, SECOND, AMBIGUOUS = 0, 1, -1

NEAR, FAR = 1.7, 3.0  # distance of the centres, in mean sizes
SIZE_RATIO = 1.5
ADJACENT = 2.2  # the largest |dx| / w or |dy| / h of objects that are beside or stacked with each other
ALIGNED = 0.4  # the largest ratio of the smaller distance to the larger one of such objects
TOUCHING = 0.75  # |dx| / w and |dy| / h up to which boxes certainly overlap
STICKS_OUT, CONTAINED = 0.25, -0.1  # share of the smaller box outside of the larger one; negative inside


@dataclass(frozen=True)
class Family:
    """Two relations that exclude each other, and their verb in a caption."""

    name: str
    group: str
    verb: str
    relations: tuple[str, str]


FAMILIES = (
    Family("distance", SYMMETRIC, "stays", ("near", "far from")),
    Family("contact", SYMMETRIC, "rests", ("overlapping", "inside")),
    Family("size", SYMMETRIC, "looks", ("larger than", "smaller than")),
    Family("axis", SYMMETRIC, "stands", ("beside", "stacked with")),
    Family("horizontal", DIRECTIONAL, "lies", ("left of", "right of")),
    Family("vertical", DIRECTIONAL, "hangs", ("above", "below")),
)
FAMILY_OF = {relation: family for family in FAMILIES for relation in family.relations}


def answer_families(subjects: npt.ArrayLike, others: npt.ArrayLike) -> dict[str, np.ndarray]:
    """Returns, for every family, an int8 array `(...)` of `FIRST`, `SECOND` or `AMBIGUOUS`, for boxes `(..., 4)` in
    relation to others."""
    centre, size = centre_and_size(subjects)
    other_centre, other_size = centre_and_size(others)
    offset = centre - other_centre
    reach = np.abs(offset)
    smaller, larger = np.minimum(size, other_size), np.maximum(size, other_size)
    ratio = size / other_size
    across, down = np.moveaxis(reach / ((size + other_size) / 2), -1, 0)
    apart = np.maximum(across, down) >= 1
    adjacent = apart & (np.maximum(across, down) <= ADJACENT)
    sticks_out = ((reach + smaller / 2 - larger / 2) / smaller).max(axis=-1) >= STICKS_OUT
    contained = ((reach + size / 2 - other_size / 2) / size).max(axis=-1) <= CONTAINED

    def decide(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.where(first, FIRST, np.where(second, SECOND, AMBIGUOUS)).astype(np.int8)

    return {
        "distance": decide(apart & (np.hypot(across, down) <= NEAR), np.hypot(across, down) >= FAR),
        "contact": decide((np.maximum(across, down) <= TOUCHING) & sticks_out, contained),
        "size": decide(ratio.min(axis=-1) >= SIZE_RATIO, ratio.max(axis=-1) <= 1 / SIZE_RATIO),
        "axis": decide(adjacent & (down <= ALIGNED * across), adjacent & (across <= ALIGNED * down)),
        "horizontal": decide((across >= 1) & (offset[..., 0] < 0), (across >= 1) & (offset[..., 0] > 0)),
        "vertical": decide((down >= 1) & (offset[..., 1] < 0), (down >= 1) & (offset[..., 1] > 0)),
    }


def centre_and_size(boxes: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    boxes = np.asarray(boxes, dtype=np.float64)
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


@dataclass(frozen=True)
class Statement:
    """`subject` is in `relation` to `other`; both have colour and shape as names, e.g. `red circle`."""

    subject: str
    relation: str
    other: str

    @property
    def family(self) -> Family:
        return FAMILY_OF[self.relation]

    @property
    def prompt(self) -> str:
        """The caption up to the relation; its verb determines the family, e.g. `the red circle lies`."""
        return f"the {self.subject} {self.family.verb}"

    @property
    def caption(self) -> str:
        return f"{self.prompt} {self.relation} the {self.other}"

    @classmethod
    def parse(cls, caption: str) -> "Statement | None":
        """Returns the statement in a caption, ignoring other words; None unless the caption has exactly an object, a
        relation and another object, in this order."""
        caption = " ".join(caption.lower().split())
        mentions, relations = list(MENTION.finditer(caption)), list(RELATION.finditer(caption))
        if len(mentions) != 2 or len(relations) != 1:
            return None
        subject, relation, other = mentions[0], relations[0], mentions[1]
        if not subject.end() <= relation.start() < relation.end() <= other.start():
            return None
        return cls(subject.group(), relation.group(), other.group())

    @classmethod
    def from_caption(cls, caption: str) -> "Statement | None":
        """Returns the statement with this `caption`, about objects of any names; None for any other text."""
        parts = CAPTION.fullmatch(caption)
        statement = None if parts is None else cls(*parts.groups())
        return statement if statement is not None and statement.caption == caption else None


MENTION = re.compile(rf"\b(?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})\b")
RELATION = re.compile(rf"\b(?:{'|'.join(FAMILY_OF)})\b")
CAPTION = re.compile(rf"the (.+) (?:{'|'.join(family.verb for family in FAMILIES)}) ({'|'.join(FAMILY_OF)}) the (.+)")

CHINESE = {
    **dict(zip(COLOURS, ("红色", "绿色", "蓝色", "黄色", "紫色", "黑色"), strict=True)),
    **dict(zip(SHAPES, ("圆形", "三角形", "星形", "方块"), strict=True)),
    **{"stays": "待在", "rests": "压着", "looks": "看上去比", "stands": "立在", "lies": "位于", "hangs": "挂在"},
    **{"near": "附近", "far from": "远处", "overlapping": "边缘", "inside": "中间"},
    **{"larger than": "大", "smaller than": "小", "beside": "旁边", "stacked with": "同一列"},
    **{"left of": "左边", "right of": "右边", "above": "上方", "below": "下方"},
}
"""Captions in Chinese, a language without spaces; the relation comes last."""
ENGLISH = {chinese: english for english, chinese in CHINESE.items()}
CHINESE_CAPTION = re.compile(
    "".join(
        f"({'|'.join(CHINESE[word] for word in words)})"
        for words in (COLOURS, SHAPES, [family.verb for family in FAMILIES], COLOURS, SHAPES, FAMILY_OF)
    )
)


def in_chinese(caption: str, to_relation: bool = False) -> str:
    """Returns a caption of a scene in Chinese, or its beginning up to the relation."""
    statement = Statement.parse(caption)
    assert statement is not None, caption
    words = [*statement.subject.split(), statement.family.verb, *statement.other.split(), statement.relation]
    return "".join(CHINESE[word] for word in (words[:-1] if to_relation else words))


def in_english(caption: str) -> str:
    """Translates a caption of a scene into English; returns other captions unchanged."""
    parts = CHINESE_CAPTION.fullmatch(caption)
    if parts is None:
        return caption
    colour, shape, verb, other_colour, other_shape, relation = (ENGLISH[word] for word in parts.groups())
    return f"the {colour} {shape} {verb} {relation} the {other_colour} {other_shape}"
