"""Predictions with their references, checked, tokenized and turned into arrays once for all metrics."""

from functools import cached_property

import numpy as np

from .document_frequency import DocumentFrequency, WordEncoder
from .tokenization import PTBTokenizer


def check_captions(predictions, references):
    """Raises `ValueError` with one sentence unless there is one string and a non-empty list of strings an image."""
    if isinstance(predictions, str) or isinstance(references, str):
        raise ValueError("predictions must be a list of strings and references a list of lists of strings.")
    if len(predictions) != len(references):
        raise ValueError(
            f"There are {len(predictions)} predictions but {len(references)} lists of references; each image needs one "
            "of either."
        )
    for row, (prediction, image_references) in enumerate(zip(predictions, references, strict=True)):
        if not isinstance(prediction, str):
            raise ValueError(
                f"Prediction {row} must be a string, not {type(prediction).__name__} ({prediction!r:.60})."
            )
        if isinstance(image_references, str):
            raise ValueError(
                f"The references of image {row} must be a list of strings, not one string; write [{image_references!r:.60}]."
            )
        if len(image_references) == 0:
            raise ValueError(f"Image {row} has no references; every image needs at least one.")
        for index, reference in enumerate(image_references):
            if not isinstance(reference, str):
                raise ValueError(
                    f"Reference {index} of image {row} must be a string, not {type(reference).__name__} "
                    f"({reference!r:.60})."
                )


class CaptionCorpus:
    """Tokenized predictions and references of a set of images.

    Args:
        predictions (`list[str]`): one caption an image.
        references (`list[list[str]]`): one or more captions an image.
        tokenizer: "ptb" for the official tokenization; an object with `tokenize(list of strings)`; or `None` for text that
            is tokenized already.

    Attributes:
        predictions (`list[str]`), references (`list[list[str]]`): the tokenized text.
    """

    def __init__(self, predictions, references, tokenizer="ptb"):
        check_captions(predictions, references)
        if len(predictions) == 0:
            raise ValueError("There is nothing to score: the list of predictions is empty.")
        self.references_per_image = np.array([len(image) for image in references], dtype=np.int64)
        flat = [reference for image in references for reference in image]
        predictions = list(predictions)
        if tokenizer == "ptb":
            tokenizer = PTBTokenizer(joined=True)
        if tokenizer is not None:
            flat, predictions = tokenizer.tokenize(flat), tokenizer.tokenize(predictions)
        ends = np.cumsum(self.references_per_image).tolist()
        self.predictions = predictions
        self.references = [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        encoder = WordEncoder()
        self.reference_words = encoder.encode(flat)
        self.prediction_words = encoder.encode(predictions)
        self.vocabulary = encoder.vocabulary

    def __len__(self):
        return len(self.predictions)

    @cached_property
    def document_frequency(self):
        """The references' own document frequencies.

        Raises:
            ValueError: there is only one image.
        """
        images = np.repeat(np.arange(len(self)), self.references_per_image)
        return DocumentFrequency.from_sequences(self.reference_words, images, self.vocabulary)
