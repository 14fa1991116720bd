"""Penn Treebank tokenization in Python, as in the COCO caption evaluation, and word ids."""

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
    """Tokenizes captions exactly like the COCO evaluation, without Java.

    The evaluation runs the tokenizer of Stanford CoreNLP 3.4.1 with `-preserveLines -lowerCase` and then removes
    punctuation: quotes, commas, colons, semicolons, dashes and full stops. Brackets (as "-lrb-"), "?!", "$", "%" and
    other symbols stay, because its list has the brackets in upper case.

    The remaining differences from the original, all found by comparing millions of strings:

    - Line ends inside a caption (line feed, carriage return, vertical tab, form feed, U+2028, U+2029) count as spaces.
      In the evaluation, only the line feed does; any other line end shifts every later caption by one.
    - In the original, a quoted attribute of an SGML tag that extends over a line end (`<a b='` in one caption, `'>` in
      a later one) includes the lines in between; here, a token never extends beyond its caption.
    - Lower-casing uses Python's tables instead of Java's; these differ for recently added letters, and for a capital
      sigma after a hyphen at the end of a word.
    - A rule reads 400 characters, which keeps the time linear: longer tags or URLs may be split, and a sentence that
      starts after more spaces than that does not end the previous one. Long words are not split.

    Args:
        joined: tokenize all captions of a call as one text, one caption per line, like the evaluation and the metrics
            of this package: an abbreviation at the end of a caption can lose its dot because of the next caption.
        keep_punctuation: do not remove punctuation.

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
        """Returns the tokens of each caption, separated by spaces; a token may have a no-break space ("1 1/2")."""
        if isinstance(captions, str):
            raise ValueError("tokenize needs a list of captions, not a string; write tokenize([caption]).")
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
        # The evaluation reads lines and strips white space at their end, even if it belongs to the last token.
        if tokens:
            tokens[-1] = tokens[-1].rstrip()
        return " ".join(tokens if self.keep_punctuation else [t for t in tokens if t not in PUNCTUATION])


class CaptionTokenizer(Protocol):
    def tokenize(self, captions: list[str]) -> list[str]: ...


TokenizerChoice = str | CaptionTokenizer | None

END_OF_CAPTION = "\ue0ff\ue0fe\ue0ff"  # private characters that no tokenizer outputs together


def tokenize(captions: list[str], tokenizer: TokenizerChoice = "ptb") -> list[str]:
    """Tokenizes captions, see [`~hf_ngsan.metrics.evaluation.CaptionMetric`]; a ValueError for other tokenizers."""
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
    """Splits tokenized captions at white space; returns word ids, and the words in the order of their ids."""
    # One long text with a separator after each caption: a list per caption would slow down the garbage collector.
    words = "".join([f"{caption} {END_OF_CAPTION} " for caption in captions]).split()
    ids = {word: index for index, word in enumerate(dict.fromkeys([END_OF_CAPTION, *words]), -1)}
    numbers = np.fromiter(map(ids.__getitem__, words), dtype=np.int64, count=len(words))
    inside = numbers >= 0
    lengths = np.diff(np.flatnonzero(~inside), prepend=-1) - 1
    del ids[END_OF_CAPTION]
    return WordSequences(numbers[inside], lengths), tuple(ids)
