"""Captions as text: Penn Treebank tokenization in Python, as the COCO caption evaluation uses it, and word ids."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import numpy as np

from ..languages import segment
from .ngrams import WordSequences
from .ptb_characters import simplify, split_pairs
from .ptb_rules import scan

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
LINE_ENDS = re.compile("[\n\r\v\f\u2028\u2029]")


def not_a_string(name: str, value: object) -> ValueError:
    """Returns the error of a value that must be a string."""
    return ValueError(f"{name} must be a string, not {type(value).__name__} ({value!r:.40}).")


class PTBTokenizer:
    """Tokenizes captions exactly as the COCO evaluation does, without Java.

    The evaluation runs the tokenizer of Stanford CoreNLP 3.4.1 with `-preserveLines -lowerCase` and takes punctuation
    out of the result. That removes quotes, commas, colons, semicolons, dashes and full stops, but leaves brackets (as
    "-lrb-"), "?!", "$", "%" and other symbols, because its list has the brackets in upper case.

    The abbreviation at the end of a caption can keep or lose its dot because of the caption after it ("12th Ave S."
    before "A man ..."): the evaluation hands all captions to the tokenizer as one text. `joined=True` does the same and
    is what the metrics of this package use; the default takes each caption alone, so that its tokens depend on nothing
    else.

    Differences from the original that remain, all found by comparing millions of strings:

    - Line ends inside a caption (line feed, carriage return, vertical tab, form feed, U+2028, U+2029) count as blanks.
      The evaluation does so for the line feed only; any other moves every later caption by one there.
    - A quoted attribute of an SGML tag that goes over a line end (`<a b='` in one caption, `'>` in a later one)
      swallows the lines between in the original; here a token never leaves its caption.
    - Unicode of different versions: the original knows the letters of Unicode 6.2, like the table here, but lower case
      comes from Java's or Python's own tables, which differ for the youngest letters, and for a capital sigma after a
      hyphen at the end of a word.
    - A lone surrogate (half a character, possible in Python strings only) is an unknown character: dropped, or replaced
      by U+FFFD within a URL.
    - A rule looks 400 characters far, which keeps the time linear: a tag or a URL that is longer may fall apart,
      and a sentence that begins after more blanks than that does not end the one before. Long words stay whole.

    Args:
        joined: tokenize the captions of a call as one text, a caption a line, as the evaluation does.
        keep_punctuation: leave punctuation in.

    Example:

    ```python
    >>> from hf_ngsan.metrics import PTBTokenizer
    >>> PTBTokenizer().tokenize(["A man's dog (brown) can't swim.", "50% of 1 1/2 pizzas!!"])
    ["a man 's dog -lrb- brown -rrb- ca n't swim", '50 % of 1\\xa01/2 pizzas !!']

    ```
    """

    def __init__(self, joined: bool = False, keep_punctuation: bool = False) -> None:
        self.joined = joined
        self.keep_punctuation = keep_punctuation

    def tokenize(self, captions: Iterable[str]) -> list[str]:
        """Tokenizes captions.

        Returns:
            For each caption its tokens with a blank between; a token may hold a no-break space ("1 1/2").

        Raises:
            ValueError: a caption is no string, or `captions` is one.
        """
        if isinstance(captions, str):
            raise ValueError("tokenize takes a list of captions, not one string; write tokenize([caption]).")
        lines = []
        for index, caption in enumerate(captions):
            if not isinstance(caption, str):
                raise not_a_string(f"Caption {index}", caption)
            lines.append(split_pairs(LINE_ENDS.sub(" ", caption)))
        return self.tokenize_joined(lines) if self.joined else [self.join_tokens(scan(line)) for line in lines]

    def tokenize_joined(self, lines: list[str]) -> list[str]:
        text, simple = "\n".join(lines), "\n".join(map(simplify, lines))
        tokenized, start = [], 0
        for line in lines:
            end = start + len(line)
            tokenized.append(self.join_tokens(scan(text, simple, start, end)))
            start = end + 1
        return tokenized

    def join_tokens(self, tokens: list[str]) -> str:
        # The evaluation reads lines: white space at their end goes, even if it belongs to the last token.
        if tokens:
            tokens[-1] = tokens[-1].rstrip()
        return " ".join(tokens if self.keep_punctuation else [t for t in tokens if t not in PUNCTUATION])


class CaptionTokenizer(Protocol):
    """Makes tokenized text, words with a blank between, of captions."""

    def tokenize(self, captions: list[str]) -> list[str]: ...


TokenizerChoice = Literal["ptb", "words", "characters"] | CaptionTokenizer | None

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
        tokenizer: "ptb" for the official tokenization of English, all captions in one run; "words" or "characters" of
            Unicode for any language (see [`~hf_ngsan.languages.segment`]); an object with `tokenize(list of strings)`;
            or `None` for text that is tokenized already.

    Raises:
        ValueError: the tokenizer is another string.
    """
    if tokenizer is None:
        return captions
    if tokenizer in ("words", "characters"):
        return [" ".join(segment(caption, tokenizer)) for caption in captions]
    if isinstance(tokenizer, str):
        if tokenizer != "ptb":
            raise ValueError(
                f"Unknown tokenizer {tokenizer!r}; use 'ptb', 'words', 'characters', an object with tokenize, or None."
            )
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
