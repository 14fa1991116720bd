"""How often the spatial relations that a captioner states are true."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from .relations import AMBIGUOUS, DIRECTIONAL, FAMILIES, FAMILY_OF, SYMMETRIC, Statement, answer_families, ask
from .relations import parse_statement as parse


@dataclass(frozen=True)
class RelationPrompt:
    """A question to a captioner, in the form of the beginning of a caption.

    text: the caption up to the relation, e.g. `a blue square with a red circle lying`; every prompt has eight words.
    subject, object: the two objects. family: name of the family of the two possible answers. group: `symmetric` or
    `directional`. relation: the true answer, e.g. `left of`.
    """

    text: str
    subject: str
    object: str
    family: str
    group: str
    relation: str


def relation_prompts(row):
    """The five prompts of a row of the `scenes` data set, one for each of its captions.

    The two answers to a prompt are equally likely given all but geometry, so that chance is 0.5 exactly.

    Raises:
        DataError: a caption of the row is not one of a scene.
    """
    return [_prompt(caption) for caption in _field(row, "captions")]


def score_relation_completions(completions, rows):
    """Accuracy of a captioner that was made to choose.

    Args:
        completions: for every row the generated texts of its `relation_prompts`, in their order; either the whole
            caption or what follows the prompt. A text that states no relation of the prompt's family counts as wrong.
        rows: rows of the `scenes` data set.

    Returns:
        The dict of `score_relations`; both chances are 0.5, and coverage is the share of texts that answer the prompt.

    Raises:
        DataError: the number of completions is not that of the rows or of their prompts.
    """
    tally = _Tally()
    for index, (texts, row) in enumerate(_pairs(completions, rows)):
        prompts = relation_prompts(row)
        if isinstance(texts, str) or len(texts) != len(prompts):
            raise DataError(f"completions, row {index}: give a list of {len(prompts)} texts, one for each prompt.")
        for prompt, text in zip(prompts, texts, strict=True):
            text = " ".join(text.lower().split())
            statement = parse(text if text.startswith(prompt.text) else f"{prompt.text} {text}")
            answers = statement is not None and FAMILY_OF[statement.relation].name == prompt.family
            answers = answers and (statement.subject, statement.object) == (prompt.subject, prompt.object)
            tally.add(prompt.family, answers and statement.relation == prompt.relation, covered=answers, chance=0.5)
    return tally.report()


def score_relations(predictions, rows):
    """Accuracy of the relations stated in free captions.

    A caption is scored where it names two objects of its scene and one relation, and the boxes clearly decide the
    relation's family for them (see `relations.py`); the others only lower the coverage.

    Args:
        predictions: one caption for each row.
        rows: rows of the `scenes` data set, with `objects` and `visual_boxes`.

    Returns:
        A dict with

        - `symmetric`, `directional`: share of true statements in [0, 1], None where there was none to score;
        - `symmetric_chance`, `directional_chance`: the share that would be true had the same relations been stated of
          pairs drawn at random among those of `rows` that the relation's family decides;
        - `coverage`: share of the predictions that were scored;
        - `symmetric_count`, `directional_count`: how many were scored;
        - `families`: for every family `accuracy`, `chance` and `count`.

    Raises:
        DataError: other numbers of predictions and rows, or rows that are not scenes.
    """
    tally = _Tally()
    pairs = _pairs(predictions, rows)
    answers = [answer_families(_field(row, "visual_boxes")) for row in rows]
    prevalence = _prevalence(answers)
    for (caption, row), answer in zip(pairs, answers, strict=True):
        statement = parse(caption)
        truth = None if statement is None else _look_up(statement, _field(row, "objects"), answer)
        if truth is None:
            tally.skip()
        else:
            family = FAMILY_OF[statement.relation]
            tally.add(family.name, statement.relation == truth, chance=prevalence[statement.relation])
    return tally.report()


class _Tally:
    def __init__(self):
        self.right, self.count, self.chance = Counter(), Counter(), Counter()
        self.asked = self.covered = 0

    def skip(self):
        self.asked += 1

    def add(self, family, right, chance, covered=True):
        self.asked += 1
        self.covered += bool(covered)
        self.right[family] += bool(right)
        self.count[family] += 1
        self.chance[family] += chance

    def report(self):
        report = {}
        for group in (SYMMETRIC, DIRECTIONAL):
            names = [family.name for family in FAMILIES if family.group == group]
            numbers = self._rates(names)
            report[group] = numbers["accuracy"]
            report[f"{group}_chance"] = numbers["chance"]
            report[f"{group}_count"] = numbers["count"]
        report["coverage"] = self.covered / self.asked if self.asked else 0.0
        report["families"] = {family.name: self._rates([family.name]) for family in FAMILIES}
        return report

    def _rates(self, names):
        count = sum(self.count[name] for name in names)
        if not count:
            return {"accuracy": None, "chance": None, "count": 0}
        right, chance = (sum(counter[name] for name in names) for counter in (self.right, self.chance))
        return {"accuracy": right / count, "chance": chance / count, "count": count}


def _prompt(caption):
    statement = parse(caption)
    if statement is None:
        raise DataError(
            f"{caption!r} states no relation of a scene; prompts exist for rows of load_data('scenes', …) only."
        )
    family = FAMILY_OF[statement.relation]
    text = ask(statement.subject, family, statement.object)
    return RelationPrompt(text, statement.subject, statement.object, family.name, family.group, statement.relation)


def _look_up(statement: Statement, objects, answers):
    """The true relation of the statement's family, or None where an object is missing or the boxes do not decide."""
    if objects.count(statement.subject) != 1 or objects.count(statement.object) != 1:
        return None
    family = FAMILY_OF[statement.relation]
    answer = answers[family.name][objects.index(statement.subject), objects.index(statement.object)]
    return None if answer == AMBIGUOUS else family.relations[answer]


def _prevalence(answers):
    """For every relation its share among the ordered pairs that its family decides."""
    counts = Counter()
    for answer in answers:
        for family in FAMILIES:
            for index, relation in enumerate(family.relations):
                counts[relation] += int(np.count_nonzero(answer[family.name] == index))
    return {
        relation: counts[relation] / max(1, sum(counts[name] for name in family.relations))
        for relation, family in FAMILY_OF.items()
    }


def _pairs(texts, rows):
    if len(texts) != len(rows):
        raise DataError(f"There are {len(texts)} predictions for {len(rows)} rows; give one for each row.")
    return list(zip(texts, rows, strict=True))


def _field(row, name):
    if row.get(name) is None:
        raise DataError(f"A row has no {name!r}; relations can be scored on rows of load_data('scenes', …) only.")
    return list(row[name]) if name != "visual_boxes" else row[name]
