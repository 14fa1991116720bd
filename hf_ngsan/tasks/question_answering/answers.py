"""Answers to questions about image files and rows of a dataset, one after the other, with figures."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...io.files import with_file_names
from ...loading.pipelines import VisualQuestionAnsweringPipeline
from ...visualization import plot_question
from ..attention_figures import prepare_figures, save_attention

DRAWN = ("image", "words", "attention", "answer", "answer_attention")
"""Parts of the answer of a pipeline that a figure shows."""


class AnsweredQuestion(NamedTuple):
    """The result for a question.

    Attributes:
        name: name of the question.
        answers: pairs of an answer and its score, the best first; empty for a skipped question.
        error: reason for skipping it, or `None`.
    """

    name: str
    answers: list[tuple[str, float]]
    error: str | None


def answer_questions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    questions: Dataset | Iterable,
    names: Iterable[str],
    *,
    top_k: int = 1,
    attention_folder: str | Path | None = None,
    on_error: str = "raise",
    batch_size: int = 64,
) -> Iterator[AnsweredQuestion]:
    """Answers questions as they come, a batch at a time, through [`VisualQuestionAnsweringPipeline`].

    Args:
        model: a model of the task visual question answering, in evaluation mode.
        processor: the model's.
        questions: rows of a `datasets.Dataset`, or anything iterable of what the pipeline takes: mappings with
            `question` and an image or features.
        names: name of each question in the results, and of its figure.
        top_k: maximal number of answers to a question.
        attention_folder: folder for a figure of each question, `NAME.png`. A question about features without an image
            or boxes gets none, and the log says so.
        on_error: `"raise"` at an input that cannot be read, or `"skip"` it.
        batch_size: questions answered together.

    Raises:
        ValueError: an input cannot be read, or the model does not take inputs of this kind.
        MissingPlotsError: figures are asked for and matplotlib is not installed.
    """
    arguments: dict[str, Any] = {"top_k": top_k, "on_error": on_error}
    if attention_folder is not None:
        arguments |= prepare_figures(attention_folder)
    pipeline = VisualQuestionAnsweringPipeline(model=model, processor=processor, batch_size=batch_size)
    questions = questions if isinstance(questions, Dataset) else iter(questions)
    found = pipeline(questions, **arguments)
    for (name, file_name), answers in zip(with_file_names(names), found, strict=True):
        best = answers[0]
        if best.get("error") is not None:
            yield AnsweredQuestion(name, [], best["error"])
            continue
        if attention_folder is not None:
            figure = Path(attention_folder) / f"{file_name}.png"
            save_attention(best, name, figure, plot_question, DRAWN)
        yield AnsweredQuestion(name, [(answer["answer"], answer["score"]) for answer in answers], None)
