"""Document frequencies, the number of images whose captions use an n-gram: the rarity weights of CIDEr and CIDEr-D."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from ..io.files import write_file_atomically
from .ngrams import ORDER, NGramLevel, NGramTable, count_documents, count_ngrams, cut_sequences, starts_of_runs
from .tokenization import TokenizerChoice, encode_words, tokenize

if TYPE_CHECKING:
    from .ngrams import TokenIds

FORMAT = "hf_ngsan.document_frequency.1"


class DocumentFrequency:
    """Document frequencies of all n-grams of order 1 to 4; a document is an image with all its captions.

    Build one from the training captions with `from_captions`, keep it with `save` and get it back with `load`. Words
    are either text (for `CiderD`, `Cider`, `CaptionMetrics`) or token ids (for `CiderDReward`).

    Attributes:
        table (`NGramTable`): the n-grams.
        counts (`list[np.ndarray]`): for each order int64 `(D,)`, the number of images of each n-gram.
        num_documents (`int`): number of images counted; its logarithm is the weight of an n-gram nobody used.
        vocabulary (`tuple[str]` or `None`): the words, or `None` where the words are token ids.
        eos_token_id (`int` or `None`): token ids only: sequences end with the first such token.
        ignored_token_ids (`tuple[int]`): token ids only: tokens left out everywhere (start, padding).

    Example:

    ```python
    >>> from hf_ngsan.metrics import DocumentFrequency
    >>> frequency = DocumentFrequency.from_captions([["a red bus", "a bus"], ["a cat"], ["the cat on a bus"]])
    >>> frequency.num_documents
    3
    >>> frequency.to_dict()["a",], frequency.to_dict()["a", "bus"]
    (3, 2)

    ```
    """

    def __init__(
        self,
        table: NGramTable,
        counts: list[np.ndarray],
        num_documents: int,
        vocabulary: Iterable[str] | None = None,
        eos_token_id: int | None = None,
        ignored_token_ids: Iterable[int] = (),
    ) -> None:
        self.table = table
        self.counts = counts
        self.num_documents = int(num_documents)
        self.vocabulary = None if vocabulary is None else tuple(vocabulary)
        self.eos_token_id = eos_token_id
        self.ignored_token_ids = tuple(ignored_token_ids)

    @classmethod
    def from_captions(
        cls,
        captions: Iterable[Iterable[str] | Iterable[TokenIds]],
        tokenizer: TokenizerChoice = "ptb",
        eos_token_id: int | None = None,
        ignored_token_ids: Sequence[int] = (),
    ) -> DocumentFrequency:
        """Counts the n-grams of a corpus.

        Args:
            captions: for each image the list of its captions. A caption is a string, or a sequence of token ids (list,
                array or tensor; negative ids are padding and left out).
            tokenizer: makes words of strings: "ptb" is the official tokenization of all captions in one run, any object
                with `tokenize(list of strings)` may take its place, and `None` says that the strings are tokenized
                already and words are divided by blanks.
            eos_token_id: token ids only: the end token. It is counted, everything after it is not.
            ignored_token_ids: token ids only: tokens to leave out, such as the start token.

        Raises:
            ValueError: there are fewer than two images (with one, every weight would be log 1 = 0), an image has no
                captions, or a caption is of the wrong type.
        """
        rows = []
        for row, image in enumerate(captions):
            if isinstance(image, str):
                raise ValueError(f"Document frequencies: image {row} must have a list of captions, not one string.")
            rows.append(list(image))
            if not rows[-1]:
                raise ValueError(f"Document frequencies: image {row} has no captions; leave it out or give it one.")
        flat: list[Any] = [caption for image in rows for caption in image]
        images = np.repeat(np.arange(len(rows)), [len(image) for image in rows])
        strings = sum(isinstance(caption, str) for caption in flat)
        if 0 < strings < len(flat):
            raise ValueError(
                "Document frequencies: give all captions as strings or all as token ids, not some of each."
            )
        if strings:
            sequences, vocabulary = encode_words(tokenize(flat, tokenizer))
            return cls.from_sequences(count_ngrams(sequences), images, vocabulary)
        levels = count_ngrams(cut_sequences(flat, eos_token_id, ignored_token_ids))
        return cls.from_sequences(levels, images, None, eos_token_id, ignored_token_ids)

    @classmethod
    def from_sequences(
        cls,
        levels: Sequence[NGramLevel],
        images: np.ndarray,
        vocabulary: Iterable[str] | None = None,
        eos_token_id: int | None = None,
        ignored_token_ids: Iterable[int] = (),
    ) -> DocumentFrequency:
        """Counts documents from the n-grams and the image of each sequence (non-decreasing); see `from_captions`."""
        num_documents = int(starts_of_runs(images).sum())
        check_num_documents(num_documents)
        counts = [count_documents(level.ngrams, images[level.sequences], len(level.words)) for level in levels]
        table = NGramTable([level.parents for level in levels], [level.words for level in levels])
        return cls(table, counts, num_documents, vocabulary, eos_token_id, ignored_token_ids)

    def __len__(self) -> int:
        """Returns the number of distinct n-grams."""
        return len(self.table)

    def __repr__(self) -> str:
        words = "token ids" if self.vocabulary is None else f"{len(self.vocabulary)} words"
        return f"DocumentFrequency(num_documents={self.num_documents}, ngrams={len(self)}, {words})"

    def to_dict(self) -> dict[tuple[str | int, ...], int]:
        """Returns all frequencies as `{(word, ...): number of images}`, for looking at them."""
        frequencies: dict[tuple[str | int, ...], int] = {}
        above: list[tuple[str | int, ...]] = [()]
        for parents, words, counts in zip(self.table.parents, self.table.words, self.counts, strict=True):
            ids = words.tolist()
            names = ids if self.vocabulary is None else [self.vocabulary[word] for word in ids]
            above = [(*above[parent], word) for parent, word in zip(parents.tolist(), names, strict=True)]
            frequencies.update(zip(above, counts.tolist(), strict=True))
        return frequencies

    def log_frequencies(self, levels: Sequence[NGramLevel], vocabulary: Sequence[str] | None = None) -> np.ndarray:
        """Returns the natural logarithm of each n-gram's frequency, 0 for one never seen, as if it were seen once.

        Args:
            levels: the n-grams.
            vocabulary: their words, where these frequencies were counted on text.

        Returns:
            float64, the n-grams of all levels one after another.

        Raises:
            ValueError: these frequencies were counted on token ids, but `vocabulary` is given.
        """
        located = self.table.locate(levels, None if vocabulary is None else self.word_ids(vocabulary))
        frequencies = [
            np.where(numbers >= 0, counts[numbers], 1) if len(counts) else np.ones(len(numbers))
            for numbers, counts in zip(located, self.counts, strict=True)
        ]
        return np.log(np.concatenate(frequencies))

    def word_ids(self, vocabulary: Sequence[str]) -> np.ndarray:
        """Returns the number that each word has here, int64 `(words,)`, or -1."""
        if self.vocabulary is None:
            raise ValueError("These document frequencies were counted on token ids; scoring text needs ones of text.")
        known = {word: index for index, word in enumerate(self.vocabulary)}
        return np.fromiter((known.get(word, -1) for word in vocabulary), dtype=np.int64, count=len(vocabulary))

    def save(self, path: str | os.PathLike) -> None:
        """Writes one `.npz` file without pickled objects, whole or not at all; missing parent folders are made."""
        header = {
            "format": FORMAT,
            "num_documents": self.num_documents,
            "eos_token_id": self.eos_token_id,
            "ignored_token_ids": self.ignored_token_ids,
            "vocabulary": self.vocabulary,
        }
        arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for n in range(ORDER):
            arrays[f"parents_{n + 1}"] = self.table.parents[n]
            arrays[f"words_{n + 1}"] = self.table.words[n]
            arrays[f"counts_{n + 1}"] = self.counts[n]
        write_file_atomically(path, lambda file: np.savez_compressed(file, **arrays))

    @classmethod
    def load(cls, path: str | os.PathLike) -> DocumentFrequency:
        """Loads a file that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a document-frequency file, or is damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes())
                if header["format"] != FORMAT:
                    raise ValueError(f"unknown format {header['format']!r}")
                parents, words, counts = (
                    [arrays[f"{name}_{n + 1}"].astype(np.int64) for n in range(ORDER)]
                    for name in ("parents", "words", "counts")
                )
        except (ValueError, LookupError, BadZipFile) as error:
            raise ValueError(
                f"{path} is not a document-frequency file written by DocumentFrequency.save, or it is damaged "
                f"({error}); build it again from the captions."
            ) from None
        special = header["eos_token_id"], header["ignored_token_ids"]
        return cls(NGramTable(parents, words), counts, header["num_documents"], header["vocabulary"], *special)


def check_num_documents(num_documents: int) -> None:
    """Raises a ValueError where document frequencies would weigh nothing."""
    if num_documents < 2:
        raise ValueError(
            "CIDEr weighs n-grams by the number of images that use them, which needs at least two images, not "
            f"{num_documents} (with one, every weight is log 1 = 0): score more images together, or pass "
            "document_frequency=DocumentFrequency.from_captions(...) of a larger corpus, such as the training captions."
        )
