"""Scenes in which two objects have exchanged their boxes, so that another relation is true; appearances stay.

```python
swap = relation_swaps(rows[0])[0]
swap.prompt.answer, swap.answer  # ("left of", "right of")
```
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .relations import DIRECTIONAL, LANDMARK, SYMMETRIC, Statement
from .scoring import RelationPrompt, Row, answers_by_object, field_of, relation_prompts, true_relation


@dataclass(frozen=True)
class RelationSwap:
    """A caption's object in another object's place.

    Attributes:
        prompt: the caption up to its relation, and the relation that was true.
        answer: the other relation of the family, which is true now.
        boxes: float32 `(N, 4)`, the boxes after the exchange.
    """

    prompt: RelationPrompt
    answer: str
    boxes: np.ndarray


def relation_swaps(row: Row) -> list[RelationSwap]:
    """Returns a swap for each caption of a scene whose relation some exchange turns into the other of its family.

    The subject changes places with another object, with the landmark only if no other object will do. A scene gives
    boxes and appearances to its objects independently, so that the result is a scene as likely as the row's.
    """
    objects, swaps = list(field_of(row, "objects")), []
    boxes = np.asarray(field_of(row, "visual_boxes"), dtype=np.float32)
    partners = sorted(range(len(objects)), key=lambda place: objects[place].endswith(LANDMARK))
    for prompt in relation_prompts(row):
        statement: Any = Statement.parse(prompt.caption)
        subject = objects.index(statement.subject)
        for partner in partners:
            if partner == subject:
                continue
            order = list(range(len(objects)))
            order[subject], order[partner] = partner, subject
            answers = answers_by_object({"objects": objects, "visual_boxes": boxes[order]})
            answer = true_relation(statement, objects, answers)
            if answer not in (None, prompt.answer):
                swaps.append(RelationSwap(prompt, str(answer), boxes[order]))
                break
    return swaps


def score_swaps(swaps: Sequence[RelationSwap], before: Sequence[str], after: Sequence[str]) -> dict[str, dict]:
    """Measures whether the relation that a captioner states changes with the truth.

    Args:
        swaps: of any rows.
        before, after: captions that continue the prompts, for the boxes of the scene and for those of the swap.

    Returns:
        For each group, `symmetric` and `directional`: number of `swaps`, share of those that `follow` (the new relation
        is stated; chance is 0.5, also for a captioner that never changes its mind) and of those whose relation
        `changed` at all.
    """
    found: defaultdict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for swap, first, second in zip(swaps, before, after, strict=True):
        words = [text.removeprefix(swap.prompt.text).strip() for text in (first, second)]
        follows = f"{words[1]} ".startswith(f"{swap.answer} ")
        changed = f"{words[0]} ".startswith(f"{swap.answer} ") != follows
        found[swap.prompt.group].append((follows, changed))
    scores = {}
    for group in (SYMMETRIC, DIRECTIONAL):
        if found[group]:
            follow, changed = np.mean(found[group], axis=0).tolist()
            scores[group] = {"swaps": len(found[group]), "follow": follow, "changed": changed, "chance": 0.5}
    return scores
