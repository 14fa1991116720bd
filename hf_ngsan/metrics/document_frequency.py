"""How many images each n-gram was used for: the rarity weights of CIDEr and CIDEr-D."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

from .ngrams import NGramTrie, WordSequences
from .token_ids import cut_sequences
from .tokenization import PTBTokenizer

_FORMAT = "hf_ngsan.document_frequency.1"


class DocumentFrequency:
    """Document frequencies of all n-grams of order 1 to 4; a document is an image with all its captions.

    Build one from the training captions with `from_captions`, keep it with `save` and get it back with `load`. Words are
    either text (for `CiderD`, `Cider`, `CaptionMetrics`) or token ids (for `CiderDReward`).

    Attributes:
        num_documents (`int`): number of images counted; its logarithm is the weight of an n-gram nobody used.
        vocabulary (`tuple[str]` or `None`): the words, or `None` where the words are token ids.
        eos_token_id (`int` or `None`): token ids only: sequences end with the first such token.
        ignored_token_ids (`tuple[int]`): token ids only: tokens left out everywhere (start, padding).
    """

    def __init__(self, trie, num_documents, vocabulary=None, eos_token_id=None, ignored_token_ids=()):
        self.trie = trie
        self.num_documents = int(num_documents)
        self.vocabulary = None if vocabulary is None else tuple(vocabulary)
        self.eos_token_id = eos_token_id
        self.ignored_token_ids = tuple(ignored_token_ids)

    @classmethod
    def from_captions(cls, captions, tokenizer="ptb", eos_token_id=None, ignored_token_ids=()):
        """Counts the n-grams of a corpus.

        Args:
            captions: for each image the list of its captions. A caption is a string, or a sequence of token ids (list,
                array or tensor; negative ids are padding and left out).
            tokenizer: what makes words of strings: "ptb" is the official tokenization of all captions in one run, any
                object with `tokenize(list of strings)` may take its place, and `None` says that the strings are
                tokenized already and words are divided by blanks.
            eos_token_id: token ids only: the end token. It is counted, everything after it is not.
            ignored_token_ids: token ids only: tokens to leave out, such as the start token.

        Raises:
            ValueError: no image, an image without captions, a single image (every weight would be 0, log 1), or a caption
                of the wrong type.
        """
        captions = [list(image) for image in captions]
        if not captions:
            raise ValueError("Document frequencies need captions, but the list of images is empty.")
        for row, image in enumerate(captions):
            if not image:
                raise ValueError(f"Document frequencies: image {row} has no captions; leave it out or give it one.")
        flat = [caption for image in captions for caption in image]
        images = np.repeat(np.arange(len(captions)), [len(image) for image in captions])
        if isinstance(flat[0], str):
            words, vocabulary = _text_to_words(flat, tokenizer)
            return cls.from_sequences(words, images, vocabulary)
        words = cut_sequences(flat, eos_token_id, ignored_token_ids)
        return cls.from_sequences(words, images, None, eos_token_id, ignored_token_ids)

    @classmethod
    def from_sequences(cls, sequences, images, vocabulary=None, eos_token_id=None, ignored_token_ids=()):
        """Counts n-grams of captions that are arrays already (`WordSequences`, with the image number of each)."""
        num_documents = len(np.unique(images))
        if num_documents < 2:
            raise ValueError(
                "CIDEr weighs n-grams by how many images use them, and one image alone gives every n-gram the weight 0: "
                "pass document_frequency=DocumentFrequency.from_captions(...) of a larger corpus, such as the training "
                "captions, or score more images together."
            )
        per_image = NGramTrie.count(sequences, images)
        whole = NGramTrie.count(sequences, np.zeros_like(images))
        counts = [
            np.bincount(nodes, minlength=len(level.keys))
            for nodes, level in zip(per_image.locate(whole, 0), whole.levels, strict=True)
        ]
        trie = NGramTrie.from_nodes(
            [level.parents for level in whole.levels], [level.words for level in whole.levels], counts, whole.base
        )
        return cls(trie, num_documents, vocabulary, eos_token_id, ignored_token_ids)

    def __len__(self):
        """Number of distinct n-grams."""
        return sum(len(level.keys) for level in self.trie.levels)

    def __repr__(self):
        words = "token ids" if self.vocabulary is None else f"{len(self.vocabulary)} words"
        return f"DocumentFrequency(num_documents={self.num_documents}, ngrams={len(self)}, {words})"

    def to_dict(self):
        """All frequencies as `{(word, ...): number of images}`, for looking at them; slow for large corpora."""
        table, above = {}, [()]
        for level in self.trie.levels:
            words = level.words.tolist()
            if self.vocabulary is not None:
                words = [self.vocabulary[word] for word in words]
            above = [(*above[parent], word) for parent, word in zip(level.parents.tolist(), words, strict=True)]
            table.update(zip(above, level.counts.tolist(), strict=True))
        return table

    def log_frequencies(self, trie, words=None):
        """Natural logarithm of each n-gram's frequency, with 1 for an n-gram never seen (so 0 in the result).

        Args:
            trie (`NGramTrie`): the n-grams asked for.
            words: this corpus' word id for each word id of `trie`, as `word_ids` gives it.
        """
        logs = []
        for nodes, level in zip(trie.locate(self.trie, 0, words), self.trie.levels, strict=True):
            seen = nodes >= 0
            frequencies = np.ones(len(nodes))
            frequencies[seen] = level.counts[nodes[seen]]
            logs.append(np.log(frequencies))
        return logs

    def word_ids(self, vocabulary):
        """For each word of `vocabulary` its id here, or -1."""
        known = {word: index for index, word in enumerate(self.vocabulary)}
        return np.fromiter((known.get(word, -1) for word in vocabulary), dtype=np.int64, count=len(vocabulary))

    def save(self, path):
        """Writes one `.npz` file without pickled objects; an existing file is replaced only when all is written."""
        path = Path(path)
        header = {
            "format": _FORMAT,
            "num_documents": self.num_documents,
            "eos_token_id": self.eos_token_id,
            "ignored_token_ids": self.ignored_token_ids,
            "base": self.trie.base,
            "vocabulary": self.vocabulary,
        }
        arrays = {"header": np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), dtype=np.uint8)}
        for order, level in enumerate(self.trie.levels, 1):
            arrays[f"parents_{order}"] = level.parents
            arrays[f"words_{order}"] = level.words
            arrays[f"counts_{order}"] = level.counts
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a document-frequency file, or is damaged.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no document-frequency file at {path}.")
        try:
            with np.load(path, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes().decode())
                if header["format"] != _FORMAT:
                    raise ValueError(f"format {header['format']!r}")
                levels = [
                    [arrays[f"{name}_{order}"].astype(np.int64) for order in range(1, 5)]
                    for name in ("parents", "words", "counts")
                ]
                trie = NGramTrie.from_nodes(*levels, base=int(header["base"]))
                _check_levels(trie, header)
                return cls(
                    trie,
                    header["num_documents"],
                    header["vocabulary"],
                    header["eos_token_id"],
                    header["ignored_token_ids"],
                )
        except Exception as error:
            raise ValueError(
                f"{path} is not a document-frequency file written by DocumentFrequency.save, or it is damaged "
                f"({type(error).__name__}: {error}); build it again from the captions."
            ) from None


def _check_levels(trie, header):
    size = 1
    for level in trie.levels:
        inside = (level.parents >= 0) & (level.parents < size) & (level.words >= 0) & (level.words < trie.base)
        counted = (level.counts >= 1) & (level.counts <= header["num_documents"])
        if not (inside.all() and counted.all() and (np.diff(level.keys) > 0).all()):
            raise ValueError("the n-gram table contradicts itself")
        size = len(level.keys)
    if header["vocabulary"] is not None and len(header["vocabulary"]) < trie.base:
        raise ValueError("words are missing")


def _text_to_words(captions, tokenizer):
    for index, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise ValueError(
                f"Document frequencies: caption {index} is of type {type(caption).__name__}, the first one is a string; "
                "give all captions as strings or all as token ids."
            )
    if tokenizer == "ptb":
        tokenizer = PTBTokenizer(joined=True)
    if tokenizer is not None:
        captions = tokenizer.tokenize(captions)
    encoder = WordEncoder()
    return encoder.encode(captions), encoder.vocabulary


class WordEncoder:
    """Gives every distinct word an id, in order of appearance."""

    def __init__(self):
        self._ids = {}

    @property
    def vocabulary(self):
        return tuple(self._ids)

    def encode(self, captions):
        """Turns strings of words divided by white space into `WordSequences`."""
        ids = self._ids
        return WordSequences.from_lists([ids.setdefault(word, len(ids)) for word in text.split()] for text in captions)
