"""Moving scenes: short clips of coloured shapes; only the order of the frames determines the captions.

A fair coin chooses the direction of time of each clip: the frames of "moves from left to right", played backwards, are
those of "moves from right to left".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value

from .prepared import Rows, prepare
from .scenes import BACKGROUND, MAX_SCENES, OVERSAMPLING, PAINT, SPLITS, outline, size_of_split
from .scenes.relations import COLOURS, SHAPES

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SIDE = 0.26  # mean side of an object, relative to the picture
ACTIONS = {
    "crossing": ("moves from left to right", "moves from right to left"),
    "approaching": ("comes closer", "goes away"),
    "swapping": ("passes {other} to the right", "passes {other} to the left"),
    "appearing": ("appears near {other}", "vanishes near {other}"),
}
"""Action of the first object with forward and backward time, by kind."""
OPENINGS = ("the {object}", "a {object}", "here the {object}", "now a {object}", "we see how the {object}")
STATED = re.compile(
    rf"(?:the|a) (?P<object>(?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})) "
    r"(?P<verb>moves from left to right|moves from right to left|comes closer|goes away|passes|appears|vanishes)"
    r"(?P<rest>.*)"
)


@dataclass(frozen=True)
class Clip:
    """Two objects and the action of the first. `places` `(2, 2, 3)` has, for each object at the beginning and the end
    of the forward clip, centre and side of its box, relative to the picture; the side is 0 before it appears."""

    objects: tuple[str, str]
    action: str
    backwards: bool
    places: np.ndarray

    @property
    def captions(self) -> list[str]:
        """Five captions with one meaning."""
        what = ACTIONS[self.action][self.backwards].format(other=f"the {self.objects[1]}")
        return [f"{opening.format(object=self.objects[0])} {what}" for opening in OPENINGS]


def make_clip(*key: int) -> Clip:
    """Makes the clip of a key of non-negative integers, e.g. `(seed, split, index)`; equal keys give equal clips."""
    random = np.random.default_rng(key)
    colours = random.choice(len(COLOURS), size=2, replace=False)
    shapes = random.integers(len(SHAPES), size=2)
    action = list(ACTIONS)[random.integers(len(ACTIONS))]
    places = np.empty((2, 2, 3))
    places[..., :2] = random.uniform(0.2, 0.8, size=(2, 1, 2))
    places[..., 2] = random.uniform(0.8 * SIDE, 1.2 * SIDE, size=(2, 1))
    left, right = random.uniform(0.15, 0.3), random.uniform(0.7, 0.85)
    if action == "crossing":
        places[0, :, 0] = left, right
        places[0, :, 1] += random.uniform(-0.1, 0.1, size=2)
    elif action == "approaching":
        places[0, :, 2] = random.uniform(0.3, 0.5) * SIDE, random.uniform(1.5, 2) * SIDE
    elif action == "swapping":
        places[0, :, 0], places[1, :, 0] = (left, right), (right, left)
        places[0, :, 1], places[1, :, 1] = random.uniform(0.2, 0.4), random.uniform(0.6, 0.8)
    else:
        places[0, 0, 2] = 0
    return Clip(
        (f"{COLOURS[colours[0]]} {SHAPES[shapes[0]]}", f"{COLOURS[colours[1]]} {SHAPES[shapes[1]]}"),
        action,
        bool(random.integers(2)),
        places,
    )


def draw_clip(clip: Clip, num_frames: int = 8, size: int = 48) -> "list[Picture]":
    """Draws the frames of a clip, RGB images of `size` x `size` pixels, at equal distances in time."""
    shares = (np.arange(num_frames) + 0.5) / num_frames
    frames = [draw_moment(clip, share, size) for share in shares]
    return frames[::-1] if clip.backwards else frames


def draw_moment(clip: Clip, share: float, size: int) -> "Picture":
    from PIL import Image, ImageDraw

    canvas = Image.new("RGB", (size * OVERSAMPLING,) * 2, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for name, (start, end) in reversed(list(zip(clip.objects, clip.places, strict=True))):
        if start[2] == 0:
            x, y, side = end if share > 0.5 else start
        else:
            x, y, side = start + share * (end - start)
        colour, shape = name.split()
        corners = outline(shape, (x - side / 2, y - side / 2, x + side / 2, y + side / 2))
        if side:
            pen.polygon([(px * canvas.width, py * canvas.height) for px, py in corners], fill=PAINT[colour])
    return canvas.resize((size, size), Image.Resampling.BILINEAR)


def load_moving_scenes(
    split: str,
    *,
    size: int = 2000,
    validation: int | None = None,
    test: int | None = None,
    seed: int = 0,
    num_frames: int = 8,
    image_size: int = 48,
) -> Dataset:
    """Loads or makes one split of `moving_scenes`, with `frames`, five `captions`, and the `action` and `object` in
    them. A clip has `num_frames` images of `image_size` pixels; other keys are those of [`~scenes.load_scenes`]."""
    number, place = size_of_split("moving_scenes", split, size, validation, test), SPLITS.index(split)
    features = Features(
        {
            "image_id": Value("int64"),
            "frames": List(Image()),
            "captions": List(Value("string")),
            "action": Value("string"),
            "object": Value("string"),
        }
    )

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(number):
            clip = make_clip(seed, place, index)
            stated = {"action": action_of(clip.captions[0]), "object": clip.objects[0]}
            frames = draw_clip(clip, num_frames, image_size)
            yield {"image_id": place * MAX_SCENES + index, "frames": frames, "captions": clip.captions, **stated}

    settings = (number, seed, num_frames, image_size)
    return prepare("moving_scenes", 1, split, settings, lambda: Rows(features, rows(), number))


def action_of(caption: str) -> str | None:
    """Returns the phrase of [`ACTIONS`] that a caption states, with `{other}` for the second object; or None."""
    stated = STATED.search(caption)
    if stated is None:
        return None
    rest = re.sub(rf"(?:the|a) (?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})", "{other}", stated["rest"])
    phrase = (stated["verb"] + rest).strip()
    return phrase if any(phrase in phrases for phrases in ACTIONS.values()) else None


class ActionScores:
    """The `ExtraScores` of moving scenes: shares of captions with the right action, and with the right object."""

    names = ("actions", "actors")
    completion_tokens = 0

    def compute(
        self, rows: Dataset, captions: Sequence[str], complete: Callable[[Sequence[int], Sequence[str]], list[str]]
    ) -> dict[str, float]:
        truth = rows.select_columns(["action", "object"])
        actions = [action_of(caption) == action for caption, action in zip(captions, truth["action"], strict=True)]
        stated = [STATED.search(caption) for caption in captions]
        actors = [match and match["object"] == name for match, name in zip(stated, truth["object"], strict=True)]
        return {"actions": float(np.mean(actions)), "actors": float(np.mean([bool(actor) for actor in actors]))}


ACTION_SCORES = ActionScores()
