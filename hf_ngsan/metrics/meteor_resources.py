"""What METEOR knows of English: function words, synonyms and paraphrases, read from the installed pycocoevalcap."""

import gzip
import hashlib
import importlib.util
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import datasets
import numpy as np

from ..io.files import write_file_atomically

LONGEST_PHRASE = 7
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Of the polynomial, modulo 2**64, of a phrase's word numbers, its key."""

ENDINGS = (
    *[("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")],
    *[("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")],
    *[("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
)
"""The rules of detachment of WordNet's morphy, nouns before verbs before adjectives."""


class MeteorDataMissing(FileNotFoundError):
    """A file that METEOR reads is missing; the message names it and how to get it."""


def meteor_folder() -> Path:
    """Returns the folder of pycocoevalcap with the data of METEOR.

    Raises:
        MeteorDataMissing: the package or one of its files is missing.
    """
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or package.submodule_search_locations is None:
        raise MeteorDataMissing("METEOR needs the package pycocoevalcap: pip install 'hf-ngsan[eval]'.")
    folder = Path(next(iter(package.submodule_search_locations)), "meteor")
    for file in ("meteor-1.5.jar", "data/paraphrase-en.gz"):
        if not (folder / file).is_file():
            raise MeteorDataMissing(f"METEOR needs {folder / file}, which is missing: install pycocoevalcap again.")
    return folder


class Lexicon:
    """Function words and synonyms of English.

    Args:
        folder: see [`meteor_folder`].
    """

    def __init__(self, folder: Path) -> None:
        with zipfile.ZipFile(folder / "meteor-1.5.jar") as jar:
            function, synsets, exceptions, prefixes = (
                jar.read(name).decode().splitlines()
                for name in (
                    *("function/english.words", "synonym/english.synsets", "synonym/english.exceptions"),
                    "nonbreaking/english.prefixes",
                )
            )
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
        self.synonyms = Synonyms(self)

    def find_synsets(self, word: str) -> frozenset[str]:
        """Returns the numbers of the synsets of a word and of the words that it may be a form of."""
        words = [word, *self.base_forms(word)]
        return frozenset(number for one in words for number in self.synsets.get(one, "").split())

    def base_forms(self, word: str) -> list[str]:
        if word in self.irregular:
            return self.irregular[word]
        if len(word) > 2 and not word.endswith("ss"):
            for ending, replacement in ENDINGS:
                base = word.removesuffix(ending) + replacement
                if word.endswith(ending) and base in self.synsets:
                    return [base]
        return []


class Synonyms(dict[str, "SynonymsOfWord"]):
    """Whether two words are synonyms, by both: `synonyms[one][other]`; found when it is first asked for."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon

    def __missing__(self, word: str) -> "SynonymsOfWord":
        self[word] = SynonymsOfWord(word, self.lexicon)
        return self[word]


class SynonymsOfWord(dict[str, bool]):
    def __init__(self, word: str, lexicon: Lexicon) -> None:
        self.word, self.synsets_of = word, lexicon.synsets_of
        self.synsets = lexicon.synsets_of(word)

    def __missing__(self, other: str) -> bool:
        self[other] = other != self.word and not self.synsets.isdisjoint(self.synsets_of(other))
        return self[other]


class Paraphrases:
    """The table of paraphrases, indexed once and then mapped into memory.

    A phrase is known by its number, the place of its key among the sorted keys of all phrases.

    Args:
        folder: see [`meteor_folder`].
    """

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
        """Returns the paraphrases of a phrase, each with its place in the order of the table."""
        targets = self.targets[self.starts[phrase] : self.starts[phrase + 1]].tolist()
        return {target: place for place, target in enumerate(targets)}

    def phrases_of(self, captions: Sequence[Sequence[str]]) -> list[list[tuple[int, int, int]]]:
        """Returns the phrases of each caption that the table has, as `(start, length, number)`."""
        numbers = self.numbers
        flat = [numbers.get(word, 0) for words in captions for word in (*words, "")]
        found: list[list[tuple[int, int, int]]] = [[] for _ in captions]
        if not flat:
            return found
        first = np.cumsum([0, *(len(words) + 1 for words in captions)])
        owners = np.repeat(np.arange(len(captions)), np.diff(first))
        for length, keys in enumerate(keys_of_phrases(np.array(flat, dtype=np.uint64)), start=1):
            starts = np.flatnonzero(keys)
            places = np.searchsorted(self.keys, keys[starts])
            known = self.keys[np.minimum(places, len(self.keys) - 1)] == keys[starts]
            starts, places = starts[known], places[known]
            rows = owners[starts]
            for row, start, place in zip(rows.tolist(), (starts - first[rows]).tolist(), places.tolist(), strict=True):
                found[row].append((start, length, place))
        return found


def keys_of_phrases(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yields for each length the keys of the phrases that begin at each word; 0 where a word has no number."""
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
    """Reads the table, whose lines are a probability, a phrase and its paraphrase by turns.

    Returns:
        `(words, keys, starts, targets)`: the words in the order of their numbers, as text with a word a line; the
        sorted keys of all phrases; where the paraphrases of each phrase begin; and the numbers of the paraphrases.
    """
    numbers: dict[str, int] = {}
    keys = array("Q")
    multiplier, size = int(MULTIPLIER), 2**64
    previous = ""
    with gzip.open(table, "rt", encoding="utf-8", newline="\n") as lines:
        for line_number, line in enumerate(lines):
            if line_number % 3 == 0:
                continue
            if line == previous:  # lines of one phrase stand together
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
