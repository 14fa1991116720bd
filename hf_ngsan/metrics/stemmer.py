"""The English stemmer of Snowball ("Porter2") as it was until 2024, which METEOR 1.5 uses.

Version 3 of Snowball stems some words differently ("added", "geologist"), so its packages do not fit.
https://snowballstem.org/algorithms/english/stemmer.html has the steps by the names used here.
"""

import re
from functools import lru_cache

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
STEP_4 = [
    "ement",
    "ance",
    "ence",
    "able",
    "ible",
    "ment",
    "ant",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
]
STEP_4 += ["al", "er", "ic"]


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
