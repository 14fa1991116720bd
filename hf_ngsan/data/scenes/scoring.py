"""Accuracy of the spatial relations in captions, also for scenes in which two objects have exchanged their boxes, so
that another relation is true.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from .relations import (
    AMBIGUOUS,
    DIRECTIONAL,
    FAMILY_OF,
    LANDMARK,
    SYMMETRIC,
    Statement,
    answer_families,
    in_chinese,
    in_english,
)

if TYPE_CHECKING:
    from datasets import Dataset

Row = Mapping[str, Any]


@dataclass(frozen=True)
class RelationPrompt:
    """The beginning of a caption up to its relation, and the true relation, such as `left of`, with its family."""

    text: str
    answer: str
    caption: str
    family: str
    group: str


def relation_prompts(row: Row) -> list[RelationPrompt]:
    """Returns the prompts of a row of `scenes` or `relations:DIR`, one for each of its captions, in order.

    The verb of a prompt allows two relations; without geometry, they are equally likely: chance is 0.5.
    """
    return [prompt_of(caption) for caption in row["captions"]]


def prompt_of(caption: str) -> RelationPrompt:
    statement = Statement.from_caption(caption)
    if statement is None:
        raise DataError(f"{caption!r} states no relation; use rows of scenes or relations:DIR.")
    return RelationPrompt(statement.prompt, statement.relation, caption, statement.family.name, statement.family.group)


def score_relation_completions(completions: Sequence[Sequence[str]], rows: Sequence[Row]) -> dict[str, Any]:
    """Measures how accurately a captioner chooses relations; chance is 0.5.

    Args:
        completions: for every row, a list of generated texts, one for each of its `relation_prompts`, in order; either
            whole captions or only the text after the prompt.
        rows: rows of the `scenes` dataset; only their captions are used.

    Returns:
        A dict with

        - `symmetric`, `directional`: share of texts that continue with the true relation, None if there are no prompts;
        - `symmetric_chance`, `directional_chance`, `symmetric_count`, `directional_count`;
        - `coverage`: share of texts that continue with either relation of the family; the others count as wrong.
    """
    right: dict[str, list[bool]] = {SYMMETRIC: [], DIRECTIONAL: []}
    covered = 0
    for texts, row in zip(completions, rows, strict=True):
        for prompt, text in zip(relation_prompts(row), texts, strict=True):
            completion = " ".join(text.lower().split()).removeprefix(prompt.text).strip()
            choices = [name for name in FAMILY_OF[prompt.answer].relations if f"{completion} ".startswith(f"{name} ")]
            right[prompt.group].append(prompt.answer in choices)
            covered += bool(choices)
    report: dict[str, Any] = {}
    for group, answers in right.items():
        report[group] = sum(answers) / len(answers) if answers else None
        report[f"{group}_chance"] = 0.5
        report[f"{group}_count"] = len(answers)
    report["coverage"] = covered / max(1, sum(map(len, right.values())))
    return report


def score_objects(predictions: Sequence[str], rows: Sequence[Row]) -> float:
    """Returns the share of captions, one for each row of `scenes`, that name two objects of their scene with the right
    colour and shape."""
    named = 0
    for caption, row in zip(predictions, rows, strict=True):
        statement, objects = Statement.parse(caption), set(row["objects"])
        named += statement is not None and len({statement.subject, statement.other} & objects) == 2
    return named / len(rows)


def answers_by_object(row: Row) -> dict[str, np.ndarray]:
    """Returns the answer of every family for every object of a row in relation to the landmark."""
    [landmark] = [index for index, name in enumerate(row["objects"]) if name.endswith(LANDMARK)]
    boxes = np.asarray(row["visual_boxes"])
    return answer_families(boxes, boxes[landmark])


def true_relation(statement: Statement, objects: list[str], answers: Mapping[str, np.ndarray]) -> str | None:
    """Returns the true relation of the statement's family, or None if the scene does not decide it."""
    if objects.count(statement.subject) != 1 or statement.other not in objects:
        return None
    if not statement.other.endswith(LANDMARK) or statement.subject == statement.other:
        return None
    answer = answers[statement.family.name][objects.index(statement.subject)]
    return None if answer == AMBIGUOUS else statement.family.relations[answer]


@dataclass(frozen=True)
class RelationSwap:
    """An exchange of a caption's object with another one: boxes float32 `(N, 4)` with the opposite relation."""

    prompt: RelationPrompt
    answer: str
    boxes: np.ndarray


def relation_swaps(row: Row) -> list[RelationSwap]:
    """Returns a swap for each caption for which an exchange reverses the relation: the subject changes places with a
    third object or, if that is not possible, with the caption's other object. Captions of photographs in which several
    objects have one of these names have no swap."""
    objects, swaps = list(row["objects"]), []
    boxes = np.asarray(row["visual_boxes"], dtype=np.float32)
    for prompt in relation_prompts(row):
        statement: Any = Statement.from_caption(prompt.caption)
        if objects.count(statement.subject) != 1 or objects.count(statement.other) != 1:
            continue
        subject, other = objects.index(statement.subject), objects.index(statement.other)
        for partner in sorted(set(range(len(objects))) - {subject}, key=other.__eq__):
            order = list(range(len(objects)))
            order[subject], order[partner] = partner, subject
            answer = answer_families(boxes[order][subject], boxes[order][other])[prompt.family]
            if answer != AMBIGUOUS and (relation := statement.family.relations[answer]) != prompt.answer:
                swaps.append(RelationSwap(prompt, relation, boxes[order]))
                break
    return swaps


def score_swaps(swaps: Sequence[RelationSwap], before: Sequence[str], after: Sequence[str]) -> dict[str, dict]:
    """Returns, for each group, the number of `swaps`, the share that `follow` (the caption after the swap states the
    new relation; chance is 0.5) and the share whose relation `changed`, given completed prompts before and after."""
    outcomes: defaultdict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for swap, first, second in zip(swaps, before, after, strict=True):
        words = [text.removeprefix(swap.prompt.text).strip() for text in (first, second)]
        follows = f"{words[1]} ".startswith(f"{swap.answer} ")
        changed = f"{words[0]} ".startswith(f"{swap.answer} ") != follows
        outcomes[swap.prompt.group].append((follows, changed))
    scores = {}
    for group in (SYMMETRIC, DIRECTIONAL):
        if outcomes[group]:
            follow, changed = np.mean(outcomes[group], axis=0).tolist()
            scores[group] = {"swaps": len(outcomes[group]), "follow": follow, "changed": changed, "chance": 0.5}
    return scores


class RelationScores:
    """The `ExtraScores` of `relations:DIR`: shares of right relations, by group, when the captioner completes captions
    that end before the relation. Chance is 0.5 for scenes; for photographs, it depends on the objects."""

    names: tuple[str, ...] = (SYMMETRIC, DIRECTIONAL)
    completion_tokens = 6

    def compute(
        self, rows: "Dataset", captions: Sequence[str], complete: Callable[[Sequence[int], Sequence[str]], list[str]]
    ) -> dict[str, float]:
        references = [{"captions": [*map(in_english, texts)]} for texts in rows["captions"]]
        is_chinese = references[0]["captions"] != rows[0]["captions"]
        prompts = [relation_prompts(row) for row in references]
        questions = [
            (index, in_chinese(prompt.caption, to_relation=True) if is_chinese else prompt.text)
            for index, row_prompts in enumerate(prompts)
            for prompt in row_prompts
        ]
        texts = map(in_english, complete([index for index, _ in questions], [text for _, text in questions]))
        report = score_relation_completions([[next(texts) for _ in row] for row in prompts], references)
        return {group: report[group] for group in (SYMMETRIC, DIRECTIONAL) if report[group] is not None}


class SceneScores(RelationScores):
    """The scores of synthetic scenes: these relations (chance is 0.5), and captions with two right objects."""

    names = ("objects", *RelationScores.names)

    def compute(
        self, rows: "Dataset", captions: Sequence[str], complete: Callable[[Sequence[int], Sequence[str]], list[str]]
    ) -> dict[str, float]:
        named = score_objects([*map(in_english, captions)], rows.select_columns("objects"))
        return {"objects": named, **super().compute(rows, captions, complete)}


RELATION_SCORES, SCENE_SCORES = RelationScores(), SceneScores()
