"""Comparison of an exported captioner with its model, on rows of a dataset."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..data.collator import visual_arguments
from ..metrics import CaptionMetrics
from .captioner import Captioner

MAX_DIFFERENCE = 1e-3
"""Largest allowed difference of log-probabilities; the rounding of sums in runtimes differs by some 1e-5."""
MAX_LOSS = 0.01
"""Largest share of CIDEr-D that an 8-bit captioner may lose."""


@dataclass
class Comparison:
    """Captions and log-probabilities of an exported captioner beside those of its model.

    Attributes:
        images: number of captioned images.
        other_captions: number of different captions, by the number of beams.
        difference: largest difference of log-probabilities, along the model's captions.
        captions: of the exported captioner, by the number of beams.
        expected: captions of the model, by the number of beams.
        cider_d: of the model and of the exported captioner, by the number of beams; empty without references.
    """

    images: int
    other_captions: dict[int, int]
    difference: float
    captions: dict[int, list[str]] = field(repr=False)
    expected: dict[int, list[str]] = field(repr=False)
    cider_d: dict[int, tuple[float, float]]

    @property
    def is_same(self) -> bool:
        """Whether captions and log-probabilities equal the model's."""
        return self.difference <= MAX_DIFFERENCE and not any(self.other_captions.values())

    def loss(self, beams: int) -> float:
        """Returns the share of CIDEr-D that the export loses, negative for a gain."""
        before, after = self.cider_d[beams]
        return (before - after) / before if before else 0.0

    @property
    def is_as_good(self) -> bool:
        """Whether the export loses at most `MAX_LOSS` of CIDEr-D."""
        return all(self.loss(beams) <= MAX_LOSS for beams in self.cider_d)


def compare(
    model: Any, processor: Any, exported: Captioner, rows: Dataset, beams: Sequence[int] = (1, 3), batch_size: int = 16
) -> Comparison:
    """Captions rows with a model and with its export.

    Args:
        model: a captioner on the CPU.
        processor: the model's.
        exported: the exported captioner.
        rows: of the feature contract, as the model reads them.
        beams: widths of the search.
        batch_size: images captioned together.
    """
    captions: dict[int, list[str]] = {width: [] for width in beams}
    expected: dict[int, list[str]] = {width: [] for width in beams}
    difference = 0.0
    for start in range(0, len(rows), batch_size):
        given = visual_arguments([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        batch = processor(**given)
        inputs = exported.prepare(**given)
        for width in beams:
            with torch.inference_mode():
                ids = model.generate(**batch, num_beams=width)
            expected[width] += processor.batch_decode(ids, skip_special_tokens=True)
            captions[width] += exported.words.decode(exported.generate(inputs, num_beams=width))
        difference = float(np.maximum(difference, largest_difference(model, batch, exported, inputs)))  # keeps NaN
    cider_d = {}
    if "captions" in rows.column_names:
        metric, references = CaptionMetrics(metrics=["cider_d"]), [list(texts) for texts in rows["captions"]]
        for width in beams:
            before = metric.compute(predictions=expected[width], references=references)["cider_d"]
            after = metric.compute(predictions=captions[width], references=references)["cider_d"]
            cider_d[width] = (before, after)
    others = {width: sum(map(operator.ne, captions[width], expected[width])) for width in beams}
    return Comparison(len(rows), others, difference, captions, expected, cider_d)


def largest_difference(
    model: Any, batch: Mapping[str, torch.Tensor], exported: Captioner, inputs: Mapping[str, np.ndarray]
) -> float:
    """Returns the largest difference between log-probabilities along the model's greedy captions, step by step."""
    with torch.inference_mode():
        output = model.generate(**batch, num_beams=1, return_dict_in_generate=True, output_logits=True)
        scores = torch.stack(output.logits, dim=1).float().log_softmax(-1).numpy()
    found = exported.log_probabilities(inputs, output.sequences[:, :-1].numpy())
    return float(np.abs(found - scores).max())
