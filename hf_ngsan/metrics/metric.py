"""The base of the caption metrics: an `evaluate.Metric` that needs neither a network nor Java."""

import datasets
import evaluate
import numpy as np

from .corpus import CaptionCorpus
from .text import check_captions

COCO_CITATION = "Chen et al., Microsoft COCO Captions: Data Collection and Evaluation Server, arXiv:1504.00325, 2015"
INPUTS = """
    predictions: one caption (a string) an image.
    references: for each image the list of its reference captions.
    per_image: also give the value of each image, as lists under "per_image".
"""


class CaptionMetric(evaluate.Metric):
    """What all caption metrics share: checked input, the official tokenization, corpus and per-image values.

    Args:
        tokenizer: "ptb" (the default) tokenizes like the COCO evaluation; an object with `tokenize(list of strings)`
            may take its place; `None` takes text that is tokenized already.
        keep_in_memory: captions stay in memory unless this is `False`; several processes need `False`.
        kwargs: passed on to `evaluate.Metric`.
    """

    description = ""
    citation = COCO_CITATION

    def __init__(self, tokenizer="ptb", keep_in_memory=None, **kwargs):
        if keep_in_memory is None:
            keep_in_memory = kwargs.get("num_process", 1) == 1
        self.tokenizer = tokenizer
        super().__init__(keep_in_memory=keep_in_memory, **kwargs)

    def _info(self):
        return evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.List(datasets.Value("string"))}
            ),
        )

    def compute(self, *, predictions=None, references=None, **kwargs):
        """Scores predictions against references, or what was added before."""
        added_before = self.writer is not None
        if added_before or self.num_process > 1 or predictions is None or references is None:
            return evaluate.Metric.compute(self, predictions=predictions, references=references, **kwargs)
        return self._compute(predictions, references, **kwargs)  # no need to pass through Arrow

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Adds predictions and references of several images."""
        check_captions(predictions, references)
        evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def add(self, *, prediction=None, reference=None, predictions=None, references=None, **kwargs):
        """Adds the prediction and the list of references of one image."""
        prediction = predictions if prediction is None else prediction
        reference = references if reference is None else reference
        check_captions([prediction], [reference])
        evaluate.Metric.add(self, prediction=prediction, reference=reference, **kwargs)

    def _compute(self, predictions, references, per_image=False):
        corpus = CaptionCorpus(predictions, references, self.tokenizer)
        totals, images = self.score_corpus(corpus)
        result = {name: float(value) for name, value in totals.items()}
        if per_image:
            result["per_image"] = {name: np.asarray(values, dtype=float).tolist() for name, values in images.items()}
        return result

    def score_corpus(self, corpus):
        """Scores a `CaptionCorpus`.

        Returns:
            `(totals, images)`: both by name of the metric, a number and an array with a value an image.
        """
        raise NotImplementedError
