"""The reader of parallel text, `parallel:SOURCE,source=LANGUAGE,target=LANGUAGE`: sentences with translations."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, Value

from .annotations import listing
from .errors import DataError
from .images.sources import open_split
from .prepared import Rows, prepare
from .readers import find_files

SIDES = ("source", "target")
PAIRS = Features({"line": Value("int64"), **{side: Value("string") for side in SIDES}})


def load_parallel(place: str, split: str, *, source: str | None = None, target: str | None = None) -> Dataset:
    """Loads one split of parallel text, with `source` and `target` (strings) and `line`, counted from 1.

    Pairs with an empty side are left out; a warning counts them and names their lines.

    Args:
        place: a folder of UTF-8 text files `SPLIT.LANGUAGE`, one sentence per line, in which lines with the same number
            are translations of each other; or a source for [`open_split`], with a column for each language or a column
            `translation` with both.
        split: `train`, `validation` (or `val`), `test`, or any other name of files without their language.
        source, target: the languages, as in the names of files or columns.

    Raises:
        DataError: a language is missing, both are the same, there are no such files or columns, files have different
            numbers of lines, text is not UTF-8, or no pair is left.
    """
    if not source or not target or source == target:
        raise DataError(f"parallel:{place} needs two languages: parallel:{place},source=LANGUAGE,target=LANGUAGE.")
    name, folder = f"{place}, split {split}", Path(place)
    if folder.is_dir() and any(file.suffix[1:] in (source, target) for file in folder.iterdir()):
        files = find_files(folder, split, f"*.{source}", f"*.{target}")
        return prepare("parallel", 1, split, files, lambda: sentence_pairs(files, name))
    dataset, numbers = open_split(place, split)
    flat = dataset.flatten()
    candidates = ([f"{prefix}{language}" for language in (source, target)] for prefix in ("", "translation."))
    texts = {name for name, kind in flat.features.items() if isinstance(kind, Value)}
    names = next((names for names in candidates if {*names} <= texts), None)
    if names is None:
        raise DataError(f"{place} needs columns {source!r} and {target!r}, or translation; it has {flat.column_names}.")
    columns = flat.select_columns(names).rename_columns(dict(zip(names, SIDES, strict=True))).with_format(None)
    columns = columns if numbers is None else columns.select(numbers)
    sides = [[text or "" for text in columns[side]] for side in SIDES]
    parts = [columns._fingerprint]
    return prepare("parallel", 1, split, parts, lambda: without_empty(list(zip(*sides, strict=True)), name))


def sentence_pairs(files: Sequence[Path], name: str) -> Rows:
    first, second = (list(lines_of(file)) for file in files)
    if len(first) != len(second):
        raise DataError(f"{files[0]} has {len(first)} lines, but {files[1]} has {len(second)}; make them parallel.")
    return without_empty(list(zip(first, second, strict=True)), name)


def lines_of(file: Path) -> Iterator[str]:
    with open(file, "rb") as lines:
        yield from decoded_lines(lines, str(file))


def decoded_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yields lines of UTF-8 text without LF or CRLF at their ends."""
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{name}, line {number}, is not UTF-8 text; convert it.") from None
        yield text.removesuffix("\n").removesuffix("\r")


def without_empty(pairs: Sequence[tuple[str, str]], name: str) -> Rows:
    rows, empty = [], []
    for line, (source, target) in enumerate(pairs, start=1):
        if source.strip() and target.strip():
            rows.append({"line": line, "source": source, "target": target})
        else:
            empty.append(line)
    if not rows:
        raise DataError(f"{name}: there are no pairs of sentences; give text in both languages.")
    note = f"{name}: pairs of sentences left out because a side is empty: {len(empty)}, {name_lines(empty)}."
    return Rows(PAIRS, rows, len(rows), [note] if empty else [])


def name_lines(lines: Sequence[int]) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {listing(lines)}"
