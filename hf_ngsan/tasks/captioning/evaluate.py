"""Scores of a captioner on a split, on one process or several.

```python
evaluate_captioner(model, processor, rows, num_beams=3).scores["cider_d"]
```
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.readers import ExtraScores
from ...io.files import write_output
from ...metrics import CaptionMetrics
from ...training.task import Evaluation
from .generate import complete_captions, generate_captions


class CaptionEvaluation(Evaluation):
    """Captions of a split and their scores; CIDEr-D is `cider_d`. A result has `image_id` and `caption`."""

    @property
    def captions(self) -> list[str]:
        """One caption per image, in the order of the rows."""
        return [result["caption"] for result in self.results]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the captions in the COCO result format, whole or not at all."""
        write_output(path, json.dumps(list(self.results), ensure_ascii=False, indent=1) + "\n")


def evaluate_captioner(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    metrics: Sequence[str] | None = None,
    extra_scores: ExtraScores | None = None,
    batch_size: int = 64,
    **generate_arguments: Any,
) -> CaptionEvaluation:
    """Captions every row and scores the captions against the row's own.

    Args:
        model, processor, rows, accelerator, batch_size, generate_arguments: see [`generate_captions`].
        metrics: metrics of [`CaptionMetrics`]; its default if `None`.
        extra_scores: further scores of the dataset, see [`~hf_ngsan.data.extra_scores_of`].
    """
    metric = CaptionMetrics() if metrics is None else CaptionMetrics(metrics=metrics)
    captions = generate_captions(model, processor, rows, accelerator, batch_size=batch_size, **generate_arguments)
    is_main_process = accelerator is None or accelerator.is_main_process
    shared: list[Any] = [score_captions(captions, rows, metric) if is_main_process else None]
    if accelerator is not None:
        broadcast_object_list(shared)
    scores: dict[str, float] = shared[0]
    if extra_scores is not None:

        def complete(indices: Sequence[int], prefixes: Sequence[str]) -> list[str]:
            beginnings = list(zip(indices, prefixes, strict=True))
            longest = extra_scores.completion_tokens
            return complete_captions(model, processor, rows, beginnings, accelerator, batch_size, longest)

        scores |= extra_scores.compute(rows, captions, complete)
    ids = [int(image_id) for image_id in rows["image_id"]]
    results = [{"image_id": one, "caption": caption} for one, caption in zip(ids, captions, strict=True)]
    return CaptionEvaluation(scores, results=results)


def score_captions(captions: list[str], rows: Dataset, metric: CaptionMetrics) -> dict[str, float]:
    """Returns scores of one caption for each row; the row's own `captions` are the references."""
    return metric.compute(predictions=captions, references=[list(references) for references in rows["captions"]])
