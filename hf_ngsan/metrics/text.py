"""Captions as text: checked, tokenized, and turned into word ids."""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import numpy as np

from .ngrams import WordSequences
from .tokenization import PTBTokenizer, not_a_string


class CaptionTokenizer(Protocol):
    """Makes tokenized text, words with a blank between, of captions."""

    def tokenize(self, captions: list[str]) -> list[str]: ...


TokenizerChoice = Literal["ptb"] | CaptionTokenizer | None

END_OF_CAPTION = "\ue0ff\ue0fe\ue0ff"  # private characters that no tokenizer lets through together


def check_scored(predictions: Sequence[str | None] | None, references: Sequence[Sequence[str] | None] | None) -> None:
    """Raises a ValueError unless there is one string and a non-empty list of strings for each image."""
    if isinstance(predictions, str) or isinstance(references, str) or predictions is None or references is None:
        raise ValueError("predictions must be a list of strings and references a list of lists of strings.")
    if len(predictions) != len(references):
        raise ValueError(
            f"There are {len(predictions)} predictions but {len(references)} lists of references; "
            "each image needs one of either."
        )
    for row, (prediction, image_references) in enumerate(zip(predictions, references, strict=True)):
        if not isinstance(prediction, str):
            raise not_a_string(f"Prediction {row}", prediction)
        if isinstance(image_references, str):
            raise ValueError(f"The references of image {row} must be a list of strings, not one string.")
        if image_references is None or not len(image_references):
            raise ValueError(f"Image {row} has no references; every image needs at least one.")
        for index, reference in enumerate(image_references):
            if not isinstance(reference, str):
                raise not_a_string(f"Reference {index} of image {row}", reference)


def tokenize(captions: list[str], tokenizer: TokenizerChoice = "ptb") -> list[str]:
    """Tokenizes captions.

    Args:
        captions: the text.
        tokenizer: "ptb" for the official tokenization, all captions in one run; an object with
            `tokenize(list of strings)`; or `None` for text that is tokenized already.

    Raises:
        ValueError: the tokenizer is another string.
    """
    if tokenizer is None:
        return captions
    if isinstance(tokenizer, str):
        if tokenizer != "ptb":
            raise ValueError(f"Unknown tokenizer {tokenizer!r}; use 'ptb', an object with tokenize(captions), or None.")
        tokenizer = PTBTokenizer(joined=True)
    return tokenizer.tokenize(captions)


def encode_words(captions: Iterable[str]) -> tuple[WordSequences, tuple[str, ...]]:
    """Numbers the words, divided by white space, of tokenized captions.

    Returns:
        `(sequences, vocabulary)`: the numbers, and the words in the order of their numbers.
    """
    # One long text with a mark after each caption: a list for each caption would keep the garbage collector busy.
    words = "".join([f"{caption} {END_OF_CAPTION} " for caption in captions]).split()
    ids = {word: index for index, word in enumerate(dict.fromkeys([END_OF_CAPTION, *words]), -1)}
    numbers = np.fromiter(map(ids.__getitem__, words), dtype=np.int64, count=len(words))
    inside = numbers >= 0
    lengths = np.diff(np.flatnonzero(~inside), prepend=-1) - 1
    del ids[END_OF_CAPTION]
    return WordSequences(numbers[inside], lengths), tuple(ids)
