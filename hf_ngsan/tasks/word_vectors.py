"""Pretrained word vectors, such as GloVe, for the words of a vocabulary.

```python
read_word_vectors("glove.6B.300d.txt", None, ["dog"])["dog"]  # an array of 300 numbers
```
"""

import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data import DataError
from ..io.files import is_stream
from ..training.recipe import RecipeError

logger = logging.getLogger(__name__)


def fill_word_vectors(
    model: Any, tokenizer: PreTrainedTokenizerBase, path: str, dictionary: str | None, size_key: str
) -> None:
    """Puts the vectors of a file into a new model; words that the file lacks keep random vectors.

    Args:
        model, tokenizer: the new model, and its tokenizer.
        path, dictionary: see [`read_word_vectors`].
        size_key: the key of the training config for the size of a vector.

    Raises:
        RecipeError: the vectors have another size than the model's.
        DataError: the file cannot be used, or has none of the words.
    """
    vocabulary = tokenizer.get_vocab()
    found = read_word_vectors(path, dictionary, vocabulary)
    weight = model.get_input_embeddings().weight
    for word, vector in found.items():
        if len(vector) != weight.shape[1]:
            raise RecipeError(
                f"data.word_vectors: {path} has vectors of {len(vector)} numbers; set {size_key}={len(vector)}."
            )
        with torch.no_grad():
            weight[vocabulary[word]] = torch.from_numpy(vector)
    known = len(vocabulary) - len(tokenizer.all_special_ids)
    if not found:
        raise DataError(f"data.word_vectors: {path} has none of the {known} words; give vectors of lower-cased words.")
    logger.info("%s has vectors of %d of the %d words of the vocabulary.", path, len(found), known)


def read_word_vectors(path: str, dictionary: str | None, words: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the vectors of some words, as far as a file has them.

    Args:
        path: `.txt`, in each line a word, which may have blanks, and its numbers (GloVe, word2vec, fastText; a first
            line of two numbers is passed over), or `.npy`, an array `(lines, size)`.
        dictionary: the words of an `.npy` file, one a line; of equal lines the last counts.
        words: words to look up.

    Raises:
        DataError: the files cannot be used, or do not fit together.
    """
    wanted, file = set(words), Path(path).expanduser()
    for name in filter(None, (path, dictionary)):
        if is_stream(Path(name).expanduser()):  # it may never end
            raise DataError(f"data.word_vectors: {name} is a device or a pipe; name a file.")
    try:
        if file.suffix == ".npy":
            return vectors_of_array(file, dictionary, wanted)
        if dictionary is not None:
            raise DataError(f"data.dictionary is for word vectors in an .npy file, not for {path}; leave it out.")
        return vectors_of_text(file, wanted)
    except OSError as error:
        raise DataError(f"data.word_vectors: {error.filename or path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"data.word_vectors: {path} or its dictionary is not UTF-8 text.") from error


def vectors_of_array(file: Path, dictionary: str | None, wanted: set[str]) -> dict[str, np.ndarray]:
    if dictionary is None:
        raise DataError(f"{file} has vectors without their words; name the list of words with data.dictionary.")
    try:
        array = np.load(file, allow_pickle=False, mmap_mode="r")
    except ValueError as error:
        raise DataError(f"{file} is not an array of numbers that can be read without running code.") from error
    with open(Path(dictionary).expanduser(), encoding="utf-8") as words:
        lines = [word.strip() for word in words]
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) != len(lines):
        raise DataError(
            f"{file} has an array {array.dtype} {array.shape}; with the {len(lines)} lines of {dictionary} it must be "
            f"one of floats, ({len(lines)}, size)."
        )
    rows = {line: index for index, line in enumerate(lines)}
    found = {word: np.asarray(array[rows[word]], dtype=np.float32) for word in wanted & rows.keys()}
    for word, vector in found.items():
        if not np.isfinite(vector).all():
            raise DataError(f"{file}: the vector of {word!r} has values that are not finite.")
    return found


def vectors_of_text(file: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    size = None
    with open(file, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            line = line.rstrip(" \r\n")  # word2vec and fastText write a blank behind every number
            if number == 1 and line.count(" ") == 1:
                continue
            size = size or line.count(" ")
            word, *numbers = line.rsplit(" ", size)  # some words of GloVe have blanks: "at name@domain.com"
            if word not in wanted:
                continue
            try:
                vector = [float(value) for value in numbers]
            except ValueError:
                vector = []
            if not vector or len(vector) != size or not all(map(math.isfinite, vector)):
                raise DataError(f"{file}, line {number}, must have a word and {size} finite numbers.")
            found[word] = np.asarray(vector, dtype=np.float32)
    return found
