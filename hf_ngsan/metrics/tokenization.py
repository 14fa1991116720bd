"""Captions as text: Penn Treebank tokenization in Python, as the COCO caption evaluation uses it, and word ids."""

import re
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ..languages import segment
from .ngrams import WordSequences
from .ptb_characters import simplify, split_pairs
from .ptb_rules import scan

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
LINE_ENDS = re.compile("[\n\r\v\f\u2028\u2029]")


class PTBTokenizer:
    """Tokenizes captions exactly as the COCO evaluation does, without Java.

    The evaluation runs the tokenizer of Stanford CoreNLP 3.4.1 with `-preserveLines -lowerCase` and takes punctuation
    out of the result. That removes quotes, commas, colons, semicolons, dashes and full stops, but leaves brackets (as
    "-lrb-"), "?!", "$", "%" and other symbols, because its list has the brackets in upper case.

    Differences from the original that remain, all found by comparing millions of strings:

    - Line ends inside a caption (line feed, carriage return, vertical tab, form feed, U+2028, U+2029) count as blanks.
      The evaluation does so for the line feed only; any other moves every later caption by one there.
    - A quoted attribute of an SGML tag that goes over a line end (`<a b='` in one caption, `'>` in a later one)
      swallows the lines between in the original; here a token never leaves its caption.
    - Lower case comes from Java's or Python's own tables, which differ for the youngest letters, and for a capital
      sigma after a hyphen at the end of a word.
    - A rule looks 400 characters far, which keeps the time linear: a tag or a URL that is longer may fall apart,
      and a sentence that begins after more blanks than that does not end the one before. Long words stay whole.

    Args:
        joined: tokenize the captions of a call as one text, a caption a line, as the evaluation and the metrics of this
            package do: an abbreviation at the end of a caption can lose its dot because of the next caption.
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
        """Returns for each caption its tokens with a blank between; a token may hold a no-break space ("1 1/2")."""
        if isinstance(captions, str):
            raise ValueError("tokenize takes a list of captions, not one string; write tokenize([caption]).")
        lines = [split_pairs(LINE_ENDS.sub(" ", caption)) for caption in captions]
        if not self.joined:
            return [self.join_tokens(scan(line)) for line in lines]
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
    def tokenize(self, captions: list[str]) -> list[str]: ...


TokenizerChoice = str | CaptionTokenizer | None

END_OF_CAPTION = "\ue0ff\ue0fe\ue0ff"  # private characters that no tokenizer lets through together


def tokenize(captions: list[str], tokenizer: TokenizerChoice = "ptb") -> list[str]:
    """Tokenizes captions, see [`~hf_ngsan.metrics.evaluation.CaptionMetric`]; a ValueError for another string."""
    if tokenizer is None:
        return captions
    if isinstance(tokenizer, str):
        known, _, language = tokenizer.partition("-")
        if known in ("words", "characters"):
            units: Any = known
            return [" ".join(segment(caption, units, language)) for caption in captions]
        if tokenizer != "ptb":
            known = "'ptb', 'words', 'characters', an object with tokenize, or None"
            raise ValueError(f"Unknown tokenizer {tokenizer!r}; use {known}.")
        tokenizer = PTBTokenizer(joined=True)
    return tokenizer.tokenize(captions)


def encode_words(captions: Iterable[str]) -> tuple[WordSequences, tuple[str, ...]]:
    """Returns the numbers of the words, divided by white space, of tokenized captions, and the words in their order."""
    # One long text with a mark after each caption: a list for each caption would keep the garbage collector busy.
    words = "".join([f"{caption} {END_OF_CAPTION} " for caption in captions]).split()
    ids = {word: index for index, word in enumerate(dict.fromkeys([END_OF_CAPTION, *words]), -1)}
    numbers = np.fromiter(map(ids.__getitem__, words), dtype=np.int64, count=len(words))
    inside = numbers >= 0
    lengths = np.diff(np.flatnonzero(~inside), prepend=-1) - 1
    del ids[END_OF_CAPTION]
    return WordSequences(numbers[inside], lengths), tuple(ids)
