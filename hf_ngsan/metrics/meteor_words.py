"""The words of METEOR and their stems.

Words are those of its option `-norm`, a variant of the tokenizer of Moses, as the program answers for English. Stems
are those of the English stemmer of Snowball ("Porter2") as it was until 2024: version 3 of Snowball stems some words
differently ("added", "geologist"), so its packages do not fit.
https://snowballstem.org/algorithms/english/stemmer.html has the steps by the names used here.
"""

import re
from functools import lru_cache

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

IRREGULAR = {
    **{"skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl"},
    **{"ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl"},
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
UNCHANGED_AFTER_PLURAL = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"]
)
VOWEL = "[aeiouy]"
REGION = re.compile(f"{VOWEL}[^aeiouy]")
SPECIAL_PREFIX = re.compile("gener|commun|arsen")
SHORT_SYLLABLE = re.compile(f"(?:[^aeiouy]{VOWEL}[^aeiouywxY]|^{VOWEL}[^aeiouy])$")
DOUBLE = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
BEFORE_LI = "cdeghkmnrt"

STEP_2 = {
    **{"ization": "ize", "ational": "ate", "fulness": "ful", "ousness": "ous", "iveness": "ive"},
    **{"tional": "tion", "biliti": "ble", "lessli": "less", "entli": "ent", "ation": "ate", "alism": "al"},
    **{"aliti": "al", "ousli": "ous", "iviti": "ive", "fulli": "ful", "enci": "ence", "anci": "ance", "abli": "able"},
    **{"izer": "ize", "ator": "ate", "alli": "al", "bli": "ble", "ogi": "og", "li": ""},
}
STEP_3 = {
    **{"ational": "ate", "tional": "tion", "alize": "al", "icate": "ic", "iciti": "ic", "ative": "", "ical": "ic"},
    **{"ness": "", "ful": ""},
}
STEP_4 = "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic".split()  # noqa: SIM905


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


def region_after(word: str, start: int) -> int:
    """Returns where the part after the first consonant that follows a vowel begins (R1, R2)."""
    found = REGION.search(word, start)
    return found.end() if found else len(word)


def longest_suffix(word: str, suffixes: dict[str, str] | list[str]) -> str:
    return max((suffix for suffix in suffixes if word.endswith(suffix)), key=len, default="")


@lru_cache(maxsize=2**16)
def stem(word: str) -> str:
    """Returns the stem of a word in lower case."""
    if len(word) <= 2:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    word = word.removeprefix("'")
    word = re.sub(f"^y|(?<={VOWEL})y", "Y", word)  # a consonant
    special = SPECIAL_PREFIX.match(word)
    r1 = special.end() if special else region_after(word, 0)
    r2 = region_after(word, r1)
    word = word.removesuffix(longest_suffix(word, ["'", "'s", "'s'"]))
    word = plural(word)
    if word not in UNCHANGED_AFTER_PLURAL:
        word = past_and_gerund(word, r1)
        word = re.sub("(?<=.[^aeiouy])[yY]$", "i", word)
        word = derived(word, r1, r2)
    return word.lower()


def plural(word: str) -> str:
    suffix = longest_suffix(word, ["sses", "ied", "ies", "us", "ss", "s"])
    if suffix == "sses":
        return word[:-2]
    if suffix in ("ied", "ies"):
        return word[:-2] if len(word) > 4 else word[:-1]
    if suffix == "s" and re.search(VOWEL, word[:-2]):
        return word[:-1]
    return word


def past_and_gerund(word: str, r1: int) -> str:
    suffix = longest_suffix(word, ["eedly", "ingly", "edly", "eed", "ing", "ed"])
    rest = word[: len(word) - len(suffix)]
    if suffix in ("eed", "eedly"):
        return f"{rest}ee" if len(rest) >= r1 else word
    if not suffix or not re.search(VOWEL, rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return f"{rest}e"
    if rest.endswith(DOUBLE):
        return rest[:-1]
    return f"{rest}e" if len(rest) <= r1 and SHORT_SYLLABLE.search(rest) else rest


def derived(word: str, r1: int, r2: int) -> str:
    """Steps 2 to 5: derivational suffixes and a last e or l."""
    suffix = longest_suffix(word, STEP_2)
    rest = word[: len(word) - len(suffix)]
    allowed = {"ogi": rest.endswith("l"), "li": rest.endswith(tuple(BEFORE_LI))}.get(suffix, True)
    if suffix and len(rest) >= r1 and allowed:
        word = rest + STEP_2[suffix]

    suffix = longest_suffix(word, STEP_3)
    rest = word[: len(word) - len(suffix)]
    if suffix and len(rest) >= (r2 if suffix == "ative" else r1):
        word = rest + STEP_3[suffix]

    suffix = longest_suffix(word, STEP_4)
    rest = word[: len(word) - len(suffix)]
    if suffix and len(rest) >= r2 and (suffix != "ion" or rest.endswith(("s", "t"))):
        word = rest

    rest = word[:-1]
    if word.endswith("e"):
        return rest if len(rest) >= r2 or (len(rest) >= r1 and not SHORT_SYLLABLE.search(rest)) else word
    return rest if word.endswith("ll") and len(rest) >= r2 else word
