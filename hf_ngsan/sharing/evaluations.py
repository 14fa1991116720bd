"""The evaluations recorded in a model's folder: scores, each with the settings that it depends on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from ..io.bounds import MAX_INTEGER, is_finite
from ..io.files import sha256, write_text_atomically
from ..training.task import Evaluation, Task

EVALUATIONS = "evaluations.json"


class EvaluationsError(ValueError):
    """A file of evaluations that cannot be read; the message names it."""


@dataclass(frozen=True)
class RecordedEvaluation:
    """Scores of a model on a split.

    Attributes:
        data: spec of the dataset.
        split: split of the dataset.
        rows: number of evaluated rows; None if unknown.
        scores: values by metric.
        fingerprints: settings that the values depend on, by metric.
        weights: checksum of the evaluated weights, see [`weights_checksum`].
        seed: seed of the training run; None if unknown.
        chose_epoch: whether the scores of this split chose the epoch of the model.
    """

    data: str
    split: str
    rows: int | None
    scores: Mapping[str, float]
    fingerprints: Mapping[str, str]
    weights: str
    seed: int | None = None
    chose_epoch: bool = False


def fingerprints_of(task: type[Task], evaluation: Evaluation, generation: Mapping, options: Mapping) -> dict[str, str]:
    """Returns the fingerprint of each score: the settings that it depends on, in the style of sacreBLEU.

    For example `cider_d|beams:3|max:20|tok:ptb|hf-ngsan:0.1.0`; the signature of a library is part of it.

    Args:
        task: class of the task.
        evaluation: scores and signatures.
        generation, options: see [`~hf_ngsan.training.task.Task.comparable_settings`].
    """
    found = {}
    for metric in evaluation.scores:
        settings = {**task.comparable_settings(metric, generation, options)}
        settings["signature"] = evaluation.signatures.get(metric)
        parts = [f"{name}:{value}" for name, value in settings.items() if value is not None]
        found[metric] = "|".join([metric, *parts, f"hf-ngsan:{version('hf-ngsan')}"])
    return found


def weights_checksum(folder: str | Path) -> str:
    """Returns a checksum of the weights in a model's folder."""
    digest = hashlib.sha256()
    for file in sorted([*Path(folder).glob("*.safetensors"), *Path(folder).glob("*.onnx")]):
        digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()


def record_evaluation(folder: str | Path, evaluation: RecordedEvaluation) -> None:
    """Adds an evaluation to the record in a model's folder; it replaces one of the same rows and settings."""
    kept = [one for one in read_evaluations(folder) if not is_of_the_same(one, evaluation)]
    write_evaluations(folder, [*kept, evaluation])


def write_evaluations(folder: str | Path, evaluations: Sequence[RecordedEvaluation]) -> None:
    text = json.dumps([asdict(one) for one in evaluations], indent=1) + "\n"
    write_text_atomically(Path(folder) / EVALUATIONS, text)


def is_of_the_same(first: RecordedEvaluation, second: RecordedEvaluation) -> bool:
    """Returns whether two evaluations have the same rows, split and settings, whatever the seed."""
    fields = ("data", "split", "rows", "fingerprints")
    return all(getattr(first, name) == getattr(second, name) for name in fields)


def read_evaluations(folder: str | Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of the weights in a folder, without those of earlier weights.

    Raises:
        EvaluationsError: the file of evaluations is damaged.
    """
    file = Path(folder) / EVALUATIONS
    if not file.is_file():
        return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        found = [RecordedEvaluation(**entry) for entry in entries]
        if not (isinstance(entries, list) and all(map(is_sound, found))):
            raise ValueError
    except (ValueError, TypeError, OverflowError, RecursionError, OSError) as error:
        raise EvaluationsError(f"{file} is damaged; delete it and evaluate again.") from error
    weights = weights_checksum(folder)
    return [one for one in found if one.weights == weights]


def is_sound(one: RecordedEvaluation) -> bool:
    """Returns whether the fields of an evaluation have the right types, and its texts are valid Unicode."""
    if not (isinstance(one.scores, dict) and isinstance(one.fingerprints, dict)):
        return False
    texts = [one.data, one.split, one.weights, *one.scores, *one.fingerprints, *one.fingerprints.values()]
    numbers = [number for number in (one.rows, one.seed) if number is not None]
    return (
        all(isinstance(text, str) and text.encode() is not None for text in texts)
        and all(type(number) is int and 0 <= number <= MAX_INTEGER for number in numbers)
        and all(map(is_finite, one.scores.values()))
        and isinstance(one.chose_epoch, bool)
    )
