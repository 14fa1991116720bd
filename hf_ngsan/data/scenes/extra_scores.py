"""Scores of a captioner that only synthetic scenes have: the objects it names and the relations it chooses."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .scoring import relation_prompts, score_objects, score_relation_completions

if TYPE_CHECKING:
    from datasets import Dataset


class SceneScores:
    """Implements `ExtraScores` for rows of the synthetic scenes.

    `objects` is the share of captions that name two objects of their scene; `symmetric` and `directional` are the
    shares of right relations where the captioner finishes captions that break off before their relation, and chance is
    0.5.
    """

    names = ("objects", "symmetric", "directional")
    completion_tokens = 6

    def compute(
        self, rows: "Dataset", captions: Sequence[str], complete: Callable[[Sequence[int], Sequence[str]], list[str]]
    ) -> dict[str, float]:
        """Computes the scores; a relation group without a single prompt is absent. See `ExtraScores.compute`."""
        scores = {"objects": score_objects(captions, rows.select_columns("objects"))}
        references = list(rows.select_columns("captions"))
        prompts = [relation_prompts(row) for row in references]
        questions = [(index, prompt.text) for index, row_prompts in enumerate(prompts) for prompt in row_prompts]
        texts = iter(complete([index for index, _ in questions], [text for _, text in questions]))
        report = score_relation_completions([[next(texts) for _ in row] for row in prompts], references)
        return scores | {group: report[group] for group in ("symmetric", "directional") if report[group] is not None}


SCENE_SCORES = SceneScores()
