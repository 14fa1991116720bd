"""METEOR's resources for English: tokenization, stems, function words, synonyms and paraphrases.

Words are those of METEOR's option `-norm`, a variant of the Moses tokenizer. Stems are those of Snowball's English
stemmer ("Porter2", https://snowballstem.org/algorithms/english/stemmer.html) before 2024: version 3 stems some words
differently ("added", "geologist"), so its packages cannot be used. The other data come from pycocoevalcap.
"""

import gzip
import hashlib
import importlib.util
import re
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import datasets
import numpy as np

from ..io.files import write_file_atomically

LONGEST_PHRASE = 7
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # base of the polynomial (mod 2**64) that hashes a phrase to its key

ENDINGS = (
    *[("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")],
    *[("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")],
    *[("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
)
"""The detachment rules of WordNet's morphy: first nouns, then verbs, then adjectives."""


LETTERS = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
SPACES = " \\t\\n\\r\\v\\f\\xa0\\u2000-\\u200a\\u202f\\u205f\\u3000"
QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": " - "})
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        *[("''", '"'), ("--", "-"), (f"([^{LETTERS}0-9{SPACES}.',\\-])", r" \1 "), (r"\.\.+", r" \g<0> ")],
        *[("([^0-9]),([^0-9])", r"\1 , \2"), ("([0-9]),([^0-9])", r"\1 , \2"), ("([^0-9]),([0-9])", r"\1 , \2")],
        *[(f"([^{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"), (f"([^{LETTERS}0-9])'([{LETTERS}])", r"\1 ' \2")],
        *[(f"([{LETTERS}])'([^{LETTERS}])", r"\1 ' \2"), (f"([{LETTERS}])'([{LETTERS}])", r"\1 '\2")],
        *[("([0-9])'s", r"\1 's"), (f"([{LETTERS}0-9.])-([{LETTERS}0-9])", r"\1 \2")],
    )
]
BLANKS = re.compile(f"[{SPACES}]+")
LETTER = re.compile(f"[{LETTERS}]")
PLAIN = re.compile("[A-Za-z0-9 ]*")  # text that the rules do not change

IRREGULAR = {
    **{"skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl"},
    **{"ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl"},
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
UNCHANGED_AFTER_PLURAL = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"]
)
VOWEL = "[aeiouy]"
REGION = re.compile(f"{VOWEL}[^aeiouy]")  # R1 and R2 begin after the first consonant that follows a vowel
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


def meteor_folder() -> Path:
    """Returns the folder of pycocoevalcap with the data of METEOR, or raises a FileNotFoundError."""
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or package.submodule_search_locations is None:
        raise FileNotFoundError("METEOR needs the package pycocoevalcap: pip install 'hf-ngsan[eval]'.")
    return Path(next(iter(package.submodule_search_locations)), "meteor")


def split_words(text: str, lexicon: "Lexicon") -> list[str]:
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


def split_last_dot(word: str, following: str, lexicon: "Lexicon") -> list[str]:
    """Returns a word that ends with a dot; the dot is split off if it ends a sentence."""
    before = word[:-1]
    if not before.strip("."):
        return [word]
    if "." in before and LETTER.search(before):
        return [word.replace(".", "")]
    numeric = before in lexicon.numeric_abbreviations and re.match("[0-9]", following)
    if before in lexicon.abbreviations or re.match("[a-z]", following) or numeric:
        return [word]
    return [before, "."]


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
    first = SPECIAL_PREFIX.match(word) or REGION.search(word)
    r1 = first.end() if first else len(word)
    second = REGION.search(word, r1)
    r2 = second.end() if second else len(word)
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
    """Steps 2 to 5: derivational suffixes and a final e or l."""
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


class Lexicon:
    """Function words, synonyms and abbreviations of English."""

    def __init__(self, folder: Path) -> None:
        with zipfile.ZipFile(folder / "meteor-1.5.jar") as jar:
            function = jar.read("function/english.words").decode().splitlines()
            synsets = jar.read("synonym/english.synsets").decode().splitlines()
            exceptions = jar.read("synonym/english.exceptions").decode().splitlines()
            prefixes = jar.read("nonbreaking/english.prefixes").decode().splitlines()
        self.function_words = frozenset(function)
        self.synsets = dict(zip(synsets[::2], synsets[1::2], strict=True))
        self.irregular: dict[str, list[str]] = {}
        for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
            for form in forms.split():
                self.irregular.setdefault(form, []).append(base)
        listed = [line for line in prefixes if line.strip() and not line.startswith("#")]
        self.abbreviations = frozenset(line.split()[0] for line in listed if "#NUMERIC_ONLY#" not in line)
        self.numeric_abbreviations = frozenset(line.split()[0] for line in listed if "#NUMERIC_ONLY#" in line)
        self.synsets_of = lru_cache(maxsize=2**16)(self.find_synsets)
        """The synsets of a word; two words with a common synset are synonyms."""

    def find_synsets(self, word: str) -> frozenset[str]:
        """Returns the numbers of the synsets of a word and of its possible base forms."""
        bases = self.irregular.get(word, [])
        if not bases and len(word) > 2 and not word.endswith("ss"):
            regular = [word.removesuffix(end) + replacement for end, replacement in ENDINGS if word.endswith(end)]
            bases = [base for base in regular if base in self.synsets][:1]
        return frozenset(number for form in (word, *bases) for number in self.synsets.get(form, "").split())


class Paraphrases:
    """The memory-mapped paraphrase table; the number of a phrase is the rank of its key."""

    def __init__(self, folder: Path) -> None:
        table = folder / "data" / "paraphrase-en.gz"
        stamp = table.stat()
        key = hashlib.sha256(f"{stamp.st_size} {stamp.st_mtime_ns} {table}".encode()).hexdigest()[:16]
        self.path = Path(datasets.config.HF_DATASETS_CACHE, "hf_ngsan", f"meteor-{key}")
        parts = ("words", "keys", "starts", "targets")
        files = [self.path / f"{part}.npy" for part in parts]
        if not all(file.is_file() for file in files):
            self.path.mkdir(parents=True, exist_ok=True)
            for file, values in zip(files, index_table(table), strict=True):
                write_file_atomically(file, lambda opened, values=values: np.save(opened, values))  # type: ignore[misc]
        words, self.keys, self.starts, self.targets = (np.load(file, mmap_mode="r") for file in files)
        self.numbers = {word: number for number, word in enumerate(bytes(words).decode().split("\n"), start=1)}
        self.paraphrases_of = lru_cache(maxsize=2**15)(self.find_paraphrases)

    def find_paraphrases(self, phrase: int) -> dict[int, int]:
        """Returns the paraphrases of a phrase, each with its position in the table."""
        targets = self.targets[self.starts[phrase] : self.starts[phrase + 1]].tolist()
        return {target: place for place, target in enumerate(targets)}

    def phrases_of(self, captions: Sequence[Sequence[str]]) -> list[list[tuple[int, int, int]]]:
        """Returns the phrases of each caption that are in the table, as `(start, length, number)`."""
        flat = [self.numbers.get(word, 0) for words in captions for word in (*words, "")]
        phrases: list[list[tuple[int, int, int]]] = [[] for _ in captions]
        if not flat:
            return phrases
        first = np.cumsum([0, *(len(words) + 1 for words in captions)])
        owners = np.repeat(np.arange(len(captions)), np.diff(first))
        for length, keys in enumerate(keys_of_phrases(np.array(flat, dtype=np.uint64)), start=1):
            starts = np.flatnonzero(keys)
            places = np.searchsorted(self.keys, keys[starts])
            known = self.keys[np.minimum(places, len(self.keys) - 1)] == keys[starts]
            starts, places = starts[known], places[known]
            rows = owners[starts]
            for row, start, place in zip(rows.tolist(), (starts - first[rows]).tolist(), places.tolist(), strict=True):
                phrases[row].append((start, length, place))
        return phrases


def keys_of_phrases(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yields, for each length, the keys of the phrases that start at each word; 0 if a word has no number."""
    keys = numbers.copy()
    yield keys
    for length in range(2, LONGEST_PHRASE + 1):
        last = numbers[length - 1 :]
        if not len(last):
            return
        before = keys[: len(last)]
        keys = np.where((before != 0) & (last != 0), before * MULTIPLIER + last, np.uint64(0))
        yield keys


def index_table(table: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reads the table; its lines are, in turn, a probability, a phrase and its paraphrase.

    Returns the words in the order of their numbers, as text with one word per line; the sorted keys of all phrases; the
    start of the paraphrases of each phrase; and the numbers of the paraphrases.
    """
    numbers: dict[str, int] = {}
    keys = array("Q")
    multiplier, size = int(MULTIPLIER), 2**64
    previous = ""
    with gzip.open(table, "rt", encoding="utf-8", newline="\n") as lines:
        for line_number, line in enumerate(lines):
            if line_number % 3 == 0:
                continue
            if line == previous:  # lines of a phrase are consecutive
                keys.append(keys[-2])
                continue
            key = 0
            for word in line[:-1].split(" "):
                key = (key * multiplier + numbers.setdefault(word, len(numbers) + 1)) % size
            keys.append(key)
            if line_number % 3 == 1:
                previous = line
    both = np.frombuffer(keys, dtype=np.uint64)
    unique, places = np.unique(both, return_inverse=True)
    sources, targets = places[::2], places[1::2]
    order = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[order], np.arange(len(unique) + 1))
    words = np.frombuffer("\n".join(numbers).encode(), dtype=np.uint8)
    return words, unique, starts.astype(np.int32), targets[order].astype(np.int32)
