"""Drawn scenes whose captions can be told only from geometry.

A scene is made so that nothing but geometry tells a relation. Of each family that it speaks about, the answer is a fair
coin thrown before anything else; the layout is then drawn until it fits the coins; and appearances are given to the
places independently of all of it. So given what the objects look like, their number and the words of a caption up to
the relation, both answers of the family are equally likely: 50% is what a model without geometry can reach.
For the directional group the same holds given the unsigned geometry of eq. 8, since a mirrored layout is as likely.
"""

from dataclasses import dataclass

import numpy as np

from .relations import COLOURS, DIRECTIONAL, FAMILIES, FIRST, SECOND, SHAPES, answer_families, state

CAPTIONS_PER_SCENE = 5
FEATURE_SIZE = len(COLOURS) + len(SHAPES)

_OBJECTS = (3, 6)
_SIZES = (0.08, 0.26)  # of the canvas, log-uniform
_GAP = 1.15  # smallest centre distance of objects that do not touch, in mean sizes
_FEATURE_NOISE = 0.05
_LAYOUTS_AT_ONCE = 128


@dataclass(frozen=True)
class Scene:
    """Named objects in boxes, and captions about them.

    objects: list of N names, colour and shape, all different; boxes: float32 `(N, 4)`, `x1, y1, x2, y2` in [0, 1] of a
    square canvas; features: float32 `(N, 10)`, colour and shape with a little noise; captions: list of five strings.
    """

    objects: list[str]
    boxes: np.ndarray
    features: np.ndarray
    captions: list[str]


def make_scene(*key):
    """Make the scene of a key of non-negative integers, e.g. `(seed, split, index)`; equal keys give equal scenes."""
    random = np.random.default_rng(key)
    number = int(random.integers(_OBJECTS[0], _OBJECTS[1] + 1))
    coins = _choose_answers(random)
    boxes, answers = _lay_out(number, coins, random)

    order = random.permutation(number)
    boxes = boxes[order]
    answers = {family: answer[np.ix_(order, order)] for family, answer in answers.items()}

    appearances = random.choice(len(COLOURS) * len(SHAPES), size=number, replace=False)
    colours, shapes = np.divmod(appearances, len(SHAPES))
    objects = [f"{COLOURS[colour]} {SHAPES[shape]}" for colour, shape in zip(colours, shapes, strict=True)]
    features = np.concatenate([np.eye(len(COLOURS))[colours], np.eye(len(SHAPES))[shapes]], axis=1)
    features += _FEATURE_NOISE * random.standard_normal(features.shape)

    captions = []
    for family in FAMILIES:
        if family.name in coins:
            pairs = np.argwhere(answers[family.name] == coins[family.name])
            subject, other = pairs[random.integers(len(pairs))]
            captions.append(state(objects[subject], family.relations[coins[family.name]], objects[other]))
    return Scene(
        objects=objects,
        boxes=boxes.astype(np.float32),
        features=features.astype(np.float32),
        captions=[captions[i] for i in random.permutation(len(captions))],
    )


def _choose_answers(random):
    """Both directional families and three of the four symmetric ones, each with a fair coin."""
    directional = [family.name for family in FAMILIES if family.group == DIRECTIONAL]
    symmetric = [family.name for family in FAMILIES if family.group != DIRECTIONAL]
    chosen = directional + list(random.choice(symmetric, size=CAPTIONS_PER_SCENE - len(directional), replace=False))
    return {name: int(random.integers(2)) for name in chosen}


def _lay_out(number, coins, random):
    """Boxes `(N, 4)` in which every coin's answer holds for some pair, and all answers about them."""
    while True:
        sizes = np.exp(random.uniform(*np.log(_SIZES), size=(_LAYOUTS_AT_ONCE, number)))
        centres = sizes[..., None] / 2 + random.random((_LAYOUTS_AT_ONCE, number, 2)) * (1 - sizes[..., None])
        if "contact" in coins:
            _bring_together(sizes, centres, coins["contact"], random)
        boxes = np.concatenate([centres - sizes[..., None] / 2, centres + sizes[..., None] / 2], axis=-1)
        answers = answer_families(boxes)
        fits = (boxes >= 0).all(axis=(1, 2)) & (boxes <= 1).all(axis=(1, 2))
        fits &= _touch_only_where_meant(sizes, centres, "contact" in coins)
        for family, coin in coins.items():
            fits &= (answers[family] == coin).any(axis=(1, 2))
        if fits.any():
            chosen = int(fits.argmax())
            return boxes[chosen], {family: answer[chosen] for family, answer in answers.items()}


def _bring_together(sizes, centres, coin, random):
    """Move object 0 of every layout onto object 1, in place: inside it, or overlapping it along one axis."""
    layouts = len(sizes)
    if coin == SECOND:
        sizes[:, 1] = random.uniform(0.22, 0.32, size=layouts)
        sizes[:, 0] = sizes[:, 1] * random.uniform(0.3, 0.45, size=layouts)
        offset = random.uniform(-0.1, 0.1, size=(layouts, 2)) * sizes[:, 1:2]
    else:
        assert coin == FIRST
        sizes[:, 0] = sizes[:, 1] * random.uniform(1 / 1.3, 1.3, size=layouts)
        along = random.uniform(0.4, 0.55, size=layouts) * random.choice([-1, 1], size=layouts)
        offset = np.stack([along, random.uniform(-0.15, 0.15, size=layouts)], axis=1)
        swap = random.random(layouts) < 0.5
        offset[swap] = offset[swap, ::-1]
        offset *= (sizes[:, 0] + sizes[:, 1])[:, None] / 2
    centres[:, 0] = centres[:, 1] + offset


def _touch_only_where_meant(sizes, centres, first_two_touch):
    distance = np.abs(centres[:, :, None] - centres[:, None]).max(axis=-1) / ((sizes[:, :, None] + sizes[:, None]) / 2)
    apart = distance >= _GAP
    apart |= np.eye(sizes.shape[1], dtype=bool)
    if first_two_touch:
        apart[:, 0, 1] = apart[:, 1, 0] = True
    return apart.all(axis=(1, 2))
