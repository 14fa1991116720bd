"""The reader of `parallel:SOURCE`: sentences and their translations, from text files or a dataset.

```python
load_parallel("multi30k", "train", source="en", target="de")[0]  # train.en and train.de
# {"line": 1, "source": "Two young men ...", "target": "Zwei junge weiße Männer ..."}
```
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from datasets import Dataset, Features, Value

from .errors import DataError, reason_of
from .images.sources import open_split
from .prepared import Rows, fingerprint, opened, prepare
from .splits import find_files

SIDES = ("source", "target")
FEATURES = Features({"line": Value("int64"), **{side: Value("string") for side in SIDES}})
MAX_LINES = 10
"""Line numbers that a message lists."""


def load_parallel(place: str, split: str, *, source: str | None = None, target: str | None = None) -> Dataset:
    """Loads one split of parallel text.

    Pairs with an empty side are left out; a warning counts them and names their lines.

    Args:
        place: a folder of text files `SPLIT.LANGUAGE`, UTF-8, one sentence a line, of which equally numbered lines are
            translations of each other; or what [`open_split`] takes, with the columns of both languages or one
            `translation` that has both.
        split: `train`, `validation` (or `val`), `test`, or any other: the name of the files without their language.
        source, target: the languages, as files or columns are named.

    Returns:
        `datasets.Dataset`, memory-mapped, with `source` and `target` (strings) and `line`, counted from 1.

    Raises:
        DataError: a language is missing, both are the same, there are no such files or columns, files have different
            numbers of lines, text is not UTF-8, or no pair is left.
    """
    if not source or not target:
        raise DataError(
            f"parallel:{place} does not say both languages; write parallel:{place},source=LANGUAGE,target=LANGUAGE."
        )
    if source == target:
        raise DataError(f"parallel:{place} has source and target {source}; name two different languages.")
    name = f"{place}, split {split}"
    if is_folder_of_text(Path(place), (source, target)):
        one, other = find_files(Path(place), split, f"*.{source}", f"*.{target}")
        return prepare("parallel", fingerprint("parallel", one, other), split, lambda: text_rows(one, other, name))
    try:
        dataset, numbers = open_split(place, split)
        columns = sentence_columns(dataset, place, source, target)
        columns = columns if numbers is None else columns.select(numbers)
        key = fingerprint("parallel", columns._fingerprint)
        return prepare("parallel", key, split, lambda: column_rows(columns, name))
    except (pa.ArrowException, UnicodeError, OSError) as error:
        raise DataError(f"{name}: the rows cannot be read ({reason_of(error)}); write the dataset again.") from error


def is_folder_of_text(folder: Path, languages: tuple[str, str]) -> bool:
    """Returns whether a folder has files with the suffix of one of two languages."""
    if any("/" in language for language in languages):
        raise DataError(f"A language is the end of a file's name, and has no slash; not {' or '.join(languages)}.")
    return folder.is_dir() and any(file.suffix[1:] in languages for file in folder.iterdir())


def text_rows(source: Path, target: Path, name: str) -> Rows:
    """Reads two text files; raises a DataError if they have different numbers of lines, or are not UTF-8."""
    numbers = [sum(1 for _ in lines_of(file)) for file in (source, target)]
    if numbers[0] != numbers[1]:
        raise DataError(
            f"{source} has {numbers[0]} lines, {target} has {numbers[1]}; parallel text needs a line for each line."
        )
    return without_empty(lambda: zip(lines_of(source), lines_of(target), strict=True), numbers[0], name)


def lines_of(file: Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file."""
    with opened(file) as lines:
        yield from decoded_lines(lines, str(file))


def decoded_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yields lines of UTF-8 text without the line feed, or carriage return and line feed, at their ends.

    Raises:
        DataError: a line is not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{name}, line {number}, is not UTF-8 text; convert it.") from None
        yield text.removesuffix("\n").removesuffix("\r")


def sentence_columns(dataset: Dataset, place: str, source: str, target: str) -> Dataset:
    """Returns the columns of both languages as `source` and `target`; raises a DataError if they hold no text."""
    flat = dataset.flatten()
    for prefix in ("", "translation."):
        names = [f"{prefix}{language}" for language in (source, target)]
        if all(name in flat.column_names for name in names):
            for name in names:
                if flat.features[name] not in (Value("string"), Value("large_string")):
                    raise DataError(f"{place}: the column {name!r} holds no text; name columns of sentences.")
            return flat.select_columns(names).rename_columns(dict(zip(names, SIDES, strict=True))).with_format(None)
    raise DataError(
        f"{place} has no columns {source!r} and {target!r}, nor a column 'translation' with both; its columns are "
        f"{', '.join(flat.column_names)}."
    )


def column_rows(dataset: Dataset, name: str) -> Rows:
    def pairs() -> Iterator[tuple[str, str]]:
        for batch in dataset.iter(batch_size=1000):
            for one, other in zip(batch["source"], batch["target"], strict=True):
                yield one or "", other or ""

    return without_empty(pairs, len(dataset), name)


def without_empty(pairs: Callable[[], Iterable[tuple[str, str]]], number: int, name: str) -> Rows:
    """Returns rows of the pairs without an empty side, with a note about the others."""
    empty = [line for line, pair in enumerate(pairs(), start=1) if not all(map(str.strip, pair))]
    if len(empty) == number:
        raise DataError(f"{name}: there is no pair of sentences; give text in both languages.")
    left_out = set(empty)
    rows = (
        {"line": line, "source": source, "target": target}
        for line, (source, target) in enumerate(pairs(), start=1)
        if line not in left_out
    )
    notes = []
    if empty:
        pairs_were = "1 pair of sentences was" if len(empty) == 1 else f"{len(empty)} pairs of sentences were"
        notes = [f"{name}: {pairs_were} left out, because a side is empty: {name_lines(empty)}."]
    return Rows(FEATURES, rows, number - len(empty), notes)


def name_lines(lines: Sequence[int]) -> str:
    """Returns the numbers of lines, the first ten if there are more, as "line 3" or "lines 3, 5 and 9 more"."""
    shown = [str(line) for line in lines[:MAX_LINES]]
    if len(lines) > len(shown):
        return f"lines {', '.join(shown)} and {len(lines) - len(shown)} more"
    return f"line {shown[0]}" if len(shown) == 1 else f"lines {', '.join(shown[:-1])} and {shown[-1]}"
