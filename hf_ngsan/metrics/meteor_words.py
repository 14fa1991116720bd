"""The words of METEOR: its option `-norm`, a variant of the tokenizer of Moses, as the program answers for English."""

import re

from .meteor_resources import Lexicon

LETTERS = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
SPACES = " \\t\\n\\r\\v\\f\\xa0\\u2000-\\u200a\\u202f\\u205f\\u3000"
QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": " - "})
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("''", '"'),
        ("--", "-"),
        (f"([^{LETTERS}0-9{SPACES}.',\\-])", r" \1 "),
        (r"\.\.+", r" \g<0> "),
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        (f"([^{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"),
        (f"([^{LETTERS}0-9])'([{LETTERS}])", r"\1 ' \2"),
        (f"([{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"),
        (f"([{LETTERS}])'([{LETTERS}])", r"\1 '\2"),
        ("([0-9])'s", r"\1 's"),
        (f"([{LETTERS}0-9.])-([{LETTERS}0-9])", r"\1 \2"),
    )
]
BLANKS = re.compile(f"[{SPACES}]+")
LETTER = re.compile(f"[{LETTERS}]")
PLAIN = re.compile("[A-Za-z0-9 ]*")
"""Text that the rules leave as it is."""


def split_words(text: str, lexicon: Lexicon) -> list[str]:
    """Returns the words of a text in lower case."""
    if PLAIN.fullmatch(text):
        return text.lower().split()
    text = f" {text.translate(QUOTES)} "
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    words = [word for word in BLANKS.split(text) if word]
    split: list[str] = []
    for word, following in zip(words, [*words, ""][1:], strict=True):
        split += split_last_dot(word, following, lexicon) if word.endswith(".") else [word]
    return [word.lower() for word in split]


def split_last_dot(word: str, following: str, lexicon: Lexicon) -> list[str]:
    """Returns a word that ends with a dot, and the dot apart if it ends a sentence."""
    before = word[:-1]
    if not before.strip("."):
        return [word]
    if "." in before and LETTER.search(before):
        return [word.replace(".", "")]
    numeric = before in lexicon.numeric_abbreviations and re.match("[0-9]", following)
    if before in lexicon.abbreviations or re.match("[a-z]", following) or numeric:
        return [word]
    return [before, "."]
