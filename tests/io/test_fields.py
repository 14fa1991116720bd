from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from hf_ngsan.io.fields import FieldError, read_fields
from tests.tables import each_row


class Pair(NamedTuple):
    name: str
    size: int


@dataclass
class Inner:
    number: int

    def __post_init__(self):
        if self.number < 0:
            raise FieldError("inner.number")


@dataclass
class Outer:
    inner: Inner
    share: float
    names: list[str]
    pairs: dict[str, Pair]
    best: int | None = None
    more: dict = field(default_factory=dict)


GIVEN = {"inner": {"number": 2}, "share": 1, "names": ["a"], "pairs": {"b": ["c", 3]}, "best": 4, "more": {"d": [None]}}


def test_an_object_becomes_its_dataclass():
    assert read_fields(Outer, GIVEN) == Outer(Inner(2), 1, ["a"], {"b": Pair("c", 3)}, 4, {"d": [None]})
    assert read_fields(Outer, {**GIVEN, "best": None}).best is None


def test_fields_with_defaults_may_be_missing_if_that_is_allowed():
    given = {name: value for name, value in GIVEN.items() if name not in ("best", "more")}
    assert read_fields(Outer, given, complete=False) == Outer(Inner(2), 1, ["a"], {"b": Pair("c", 3)})
    with pytest.raises(FieldError, match="best"):
        read_fields(Outer, given)


@each_row(
    ("name", "change"),
    [
        ("inner", {"inner": 2}),
        ("inner.number", {"inner": {}}),
        ("inner.number", {"inner": {"number": True}}),
        ("inner.number", {"inner": {"number": -1}}),
        ("inner.other", {"inner": {"number": 1, "other": 2}}),
        ("share", {"share": "1"}),
        ("share", {"share": True}),
        ("names", {"names": "a"}),
        ("names", {"names": [1]}),
        ("pairs", {"pairs": {"b": ["c"]}}),
        ("pairs", {"pairs": {"b": ["c", "d"]}}),
        ("pairs", {"pairs": [["c", 3]]}),
        ("best", {"best": 1.5}),
        ("more", {"more": []}),
        ("unknown", {"unknown": 1}),
    ],
)
def test_the_first_wrong_field_is_named(name, change):
    with pytest.raises(FieldError) as caught:
        read_fields(Outer, {**GIVEN, **change})
    assert str(caught.value) == name
    for value in (None, [], 3):
        with pytest.raises(FieldError):
            read_fields(Outer, value)
