"""Hostile values, put in the place of valid ones, and damage to the bytes of files."""

import json
import os
import random
from pathlib import Path
from typing import Any

DEEP, DIGITS = "@deep@", "@digits@"
"""Stand in a document for what Python itself does not write: lists within lists, and a number of 5,000 digits."""
WRITTEN = {DEEP: "[" * 50_000 + "]" * 50_000, DIGITS: "9" * 5_000}
VALUES = (
    *(None, True, "", " ", "x", "é", "\ud800", "a\0b", "a\nb", "a" * 5_000, "9" * 5_000, "~", "%s{}", "-1", "nan"),
    *(0, 1, -1, 2**31, 2**63, 10**9, 10**25, -(10**25), 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")),
    *([], {}, [[]], [None], [1, "a"], {"a": {"b": [1]}}, ["x"] * 2_000, DEEP, DIGITS),
)


def hostile_value(draw: random.Random, places: list[str]) -> Any:
    """Returns a value that a field should not have; sometimes the path of something that is no file."""
    return draw.choice(places) if draw.random() < 0.1 else draw.choice(VALUES)


def mutated(draw: random.Random, document: Any, places: list[str]) -> Any:
    """Returns a document of mappings and lists with one thing in it changed, at any depth."""
    if not isinstance(document, dict | list) or not document or draw.random() < 0.1:
        return hostile_value(draw, places)
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key = draw.choice(keys)
    copy = document.copy()
    deed = draw.random()
    if deed < 0.08:
        del copy[key]
    elif deed < 0.12 and isinstance(copy, dict):
        copy[draw.choice(["unknown", "", "\ud800", str(key).upper()])] = hostile_value(draw, places)
    elif deed < 0.12:
        copy.append(copy[key])
    else:
        copy[key] = mutated(draw, copy[key], places)
    return copy


def mutate_json(draw: random.Random, path: Path, places: list[str]) -> None:
    """Changes one thing in a JSON file, or damages its bytes."""
    if draw.random() < 0.2:
        damage(draw, path, places)
        return
    text = json.dumps(mutated(draw, json.loads(path.read_text()), places))
    for mark, written in WRITTEN.items():
        text = text.replace(json.dumps(mark), written)
    path.write_text(text)


def damage(draw: random.Random, path: Path, places: list[str]) -> None:
    """Cuts a file, flips bits in it, or puts something else in its place."""
    content = bytearray(path.read_bytes())
    deed = draw.randrange(6)
    path.unlink()
    if deed == 0:
        content = content[: draw.randrange(len(content) + 1)]
    elif deed == 1:
        for _ in range(draw.choice([1, 3, 100])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif deed == 2:
        content = bytearray(draw.choice([b"", b"\0", b"\n", b"[" * 100_000, b"null", b'"', b"\xff\xfe", b"\x89PNG"]))
    elif deed == 3:
        content *= 2
    if deed == 4:
        os.symlink(draw.choice(places), path)
    elif deed != 5:
        path.write_bytes(content)
