"""Evaluations that a model's folder remembers, each with what its numbers depend on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..files import sha256, write_text_atomically
from ..models.configuration_hub import is_finite

EVALUATIONS = "evaluations.json"
WITH_DOCUMENT_FREQUENCIES = ("cider_d", "cider")
"""Metrics whose values depend on the document frequencies."""


class EvaluationsError(ValueError):
    """A file of evaluations that cannot be read; the message names it."""


@dataclass(frozen=True)
class RecordedEvaluation:
    """Scores of a model on a split.

    Attributes:
        data: spec of the dataset.
        split: of it.
        rows: how many were evaluated; None if that is not known.
        scores: values by the names of metrics.
        fingerprints: by the names of metrics what else their values depend on.
        weights: checksum of the weights that were evaluated, see [`weights_checksum`].
        seed: of the training run; None if it is not known.
        chose_epoch: the split is the one whose scores chose the epoch of the model.
    """

    data: str
    split: str
    rows: int | None
    scores: Mapping[str, float]
    fingerprints: Mapping[str, str]
    weights: str
    seed: int | None = None
    chose_epoch: bool = False


def fingerprint(metric: str, settings: Mapping[str, Any]) -> str:
    """Returns what the value of a metric depends on beside model and data, in the style of sacreBLEU.

    Args:
        metric: its name.
        settings: of decoding or of the protocol, such as `{"beams": 3}`; those that are `None` are left out.
    """
    parts = {name: value for name, value in settings.items() if value is not None}
    if metric in WITH_DOCUMENT_FREQUENCIES:
        parts["df"] = "references"
        parts["end"] = "excluded"
    return "|".join([metric, *(f"{name}:{value}" for name, value in parts.items()), f"hf-ngsan:{version('hf-ngsan')}"])


def caption_settings(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the scores of captions depend on.

    Args:
        own: the model's settings of `generate()`.
        given: arguments of `generate()` that were given in their place.
    """
    settings = {**own, **given}
    beams = settings.get("num_beams") or 1
    penalty = settings.get("length_penalty")
    return {
        "beams": beams,
        "length_penalty": (1.0 if penalty is None else penalty) if beams > 1 else None,
        "max": settings.get("max_new_tokens") or settings.get("max_length"),
        "tok": "ptb",
    }


def weights_checksum(folder: str | Path) -> str:
    """Returns a checksum of the weights in a model's folder."""
    digest = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")):
        digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()


def record_evaluation(folder: str | Path, evaluation: RecordedEvaluation) -> None:
    """Adds an evaluation to those that a model's folder remembers, in place of one of the same rows and settings."""
    kept = [one for one in read_evaluations(folder) if not is_of_the_same(one, evaluation)]
    write_evaluations(folder, [*kept, evaluation])


def write_evaluations(folder: str | Path, evaluations: Sequence[RecordedEvaluation]) -> None:
    text = json.dumps([asdict(one) for one in evaluations], indent=1) + "\n"
    write_text_atomically(Path(folder) / EVALUATIONS, text)


def is_of_the_same(first: RecordedEvaluation, second: RecordedEvaluation) -> bool:
    """Returns whether two evaluations ask the same of a model, whatever its seed."""
    return (first.data, first.split, first.rows, first.fingerprints) == (
        second.data,
        second.split,
        second.rows,
        second.fingerprints,
    )


def read_evaluations(folder: str | Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of the weights that are in a folder; those of earlier weights do not count.

    Raises:
        EvaluationsError: the file that has them is damaged.
    """
    file = Path(folder) / EVALUATIONS
    if not file.is_file():
        return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        found = [RecordedEvaluation(**entry) for entry in entries]
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise EvaluationsError(f"{file} is damaged; delete it and evaluate again.") from error
    for one in found:
        values = {field.name: getattr(one, field.name) for field in fields(one)}
        texts = all(isinstance(values[name], str) for name in ("data", "split", "weights"))
        mappings = all(isinstance(values[name], Mapping) for name in ("scores", "fingerprints"))
        if not (texts and mappings and all(is_finite(value) for value in one.scores.values())):
            raise EvaluationsError(f"{file} is damaged; delete it and evaluate again.")
    weights = weights_checksum(folder)
    return [one for one in found if one.weights == weights]
