"""What the three packaged captioners say of synthetic scenes: relations that they state, and which of them are true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset

from ..data.scenes import Statement, relation_prompts, score_relation_completions
from ..data.scenes.relations import DIRECTIONAL, LANDMARK
from ..data.scenes.scoring import RelationSwap, answers_by_object, prompt_of, relation_swaps, true_relation
from ..io.packaged import CAPTIONERS_OF_SCENES
from ..loading.models import load_captioner
from ..tasks.captioning_generation import caption_batch, complete_captions

Captioner = tuple[Any, Any]
"""A model and its processor."""
Row = Mapping[str, Any]
COMPLETION: dict[str, Any] = {"num_beams": 1, "length_penalty": None, "max_new_tokens": 6}
"""Arguments of `generate` for the relation of a caption that breaks off before it."""


@dataclass(frozen=True)
class Answer:
    """A caption or a relation that a captioner states; `is_true` is None where the scene does not decide it."""

    text: str
    is_true: bool | None


@dataclass(frozen=True)
class Sentence:
    """A caption that breaks off before its relation, and how each captioner, by its name, goes on."""

    beginning: str  # the red circle lies
    end: str  # the blue square
    answers: dict[str, Answer]


@dataclass(frozen=True)
class Described:
    """A scene with the captions of each captioner, by its name, and the sentences whose relation the scene decides."""

    row: Row
    captions: dict[str, Answer]
    sentences: list[Sentence]


def load_captioners_of_scenes() -> dict[str, Captioner]:
    """Returns the packaged captioners of scenes by variant: SAN, NG-SAN and NG-SAN signed."""
    return {variant: load_captioner(name) for variant, name in CAPTIONERS_OF_SCENES.items()}


def scene_to_change(rows: Sequence[Row]) -> tuple[Row, RelationSwap]:
    """Returns the scene, and the exchange of two of its objects, that turn most of its directions, such as left of.

    Neither object is the landmark, to which the captions relate the others. Of equal ones it is the one that leaves the
    fewest captions undecided, or else the first. Only the truth decides, and nothing that a captioner says.

    Raises:
        ValueError: no exchange turns any caption.
    """
    swaps = [(row, swap) for row in rows for swap in relation_swaps(row) if not moves_landmark(row, swap)]
    if not swaps:
        raise ValueError(f"No two objects of {len(rows)} scenes can change places so that a caption turns false.")
    return max(swaps, key=lambda one: truths_after(*one))


def moves_landmark(row: Row, swap: RelationSwap) -> bool:
    landmark = [name.endswith(LANDMARK) for name in row["objects"]].index(True)
    return not np.array_equal(swap.boxes[landmark], np.asarray(row["visual_boxes"][landmark], np.float32))


def truths_after(row: Row, swap: RelationSwap) -> tuple[int, int]:
    """Returns how many captions about a direction are false after an exchange, and how many captions are decided."""
    truths = [true_relation_of(caption, {**row, "visual_boxes": swap.boxes}) for caption in row["captions"]]
    pairs = [(prompt, truth) for prompt, truth in zip(relation_prompts(row), truths, strict=True) if truth is not None]
    return sum(prompt.group == DIRECTIONAL and truth != prompt.answer for prompt, truth in pairs), len(pairs)


def true_relation_of(caption: str, row: Row) -> str | None:
    """Returns the relation that is true where a caption states one; None where the scene does not decide it."""
    statement = Statement.parse(caption)
    return None if statement is None else true_relation(statement, list(row["objects"]), answers_by_object(row))


def describe(captioners: Mapping[str, Captioner], row: Row) -> Described:
    """Captions a scene, and finishes each of its own captions after the verb, with every captioner."""

    def judged(caption: str, shown: str) -> Answer:
        truth, statement = true_relation_of(caption, row), Statement.parse(caption)
        return Answer(shown, None if truth is None or statement is None else statement.relation == truth)

    captions, sentences = {}, []
    for name, (model, processor) in captioners.items():
        [caption] = caption_batch(model, processor, [dict(row)])
        captions[name] = judged(caption, caption)
    for caption in row["captions"]:
        if true_relation_of(caption, row) is None:
            continue
        prompt = prompt_of(caption)
        end, answers = caption.removeprefix(f"{prompt.text} {prompt.answer} "), {}
        for name, (model, processor) in captioners.items():
            [finished] = caption_batch(model, processor, [dict(row)], [prompt.text], **COMPLETION)
            relation = finished.removeprefix(prompt.text).strip().removesuffix(end).strip()
            answers[name] = judged(f"{prompt.text} {relation} {end}", relation)
        sentences.append(Sentence(prompt.text, end, answers))
    return Described(row, captions, sentences)


def relation_accuracy(captioners: Mapping[str, Captioner], rows: Dataset) -> dict[str, dict[str, float]]:
    """Returns the shares of right relations by captioner and group, `symmetric` and `directional`; chance is 0.5."""
    references = [dict(row) for row in rows.select_columns("captions")]
    prompts = [[prompt.text for prompt in relation_prompts(row)] for row in references]
    beginnings = [(number, text) for number, texts in enumerate(prompts) for text in texts]
    accuracy = {}
    for name, (model, processor) in captioners.items():
        finished = iter(complete_captions(model, processor, rows, beginnings, max_new_tokens=6))
        report = score_relation_completions([[next(finished) for _ in texts] for texts in prompts], references)
        accuracy[name] = {group: report[group] for group in ("symmetric", "directional")}
    return accuracy
