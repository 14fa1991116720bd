"""Conversion of annotation files without features: captions by image, or questions with answers.

```python
convert_annotations(["captions_val2014.json"], "captions", split="validation")
```
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset, Features, List, Value

from ..io.folders import is_empty, write_folder_atomically
from ..io.shards import SKIPPED, without_progress_bars
from .errors import DataError, as_data_error
from .formats.annotation_files import read_document
from .formats.annotations import Annotations
from .formats.vqa_v2 import Questions, is_answers, is_questions

COLUMNS = {
    "question_id": Value("int64"),
    "image_id": Value("int64"),
    "question": Value("string"),
    "answers": List(Value("string")),
    "multiple_choice_answer": Value("string"),
    "answer_type": Value("string"),
    "file_name": Value("string"),
    "captions": List(Value("string")),
    "split": Value("string"),
    "width": Value("int32"),
    "height": Value("int32"),
}
"""Types of the columns of questions, then of images."""


class TableResult(NamedTuple):
    """Result of a conversion of annotations: number of rows, columns, and the records that could not be read."""

    num_rows: int
    columns: list[str]
    skipped: list[dict]


def convert_annotations(
    inputs: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    split: str | None = None,
    skip_broken: bool = False,
) -> TableResult:
    """Writes annotation files into a folder that `datasets.load_from_disk` reads, whole or not at all.

    Args:
        inputs: files of images ([`formats.annotations`]), which are merged by image id, or files of VQA v2.
        output: the folder; new or empty.
        split: value of the column `split` for images without one in the annotations.
        skip_broken: whether to skip and list records that cannot be used, instead of ending with an error.

    Returns:
        The result. Rows of images have `image_id` and, if known, `file_name`, `captions`, `split` and size;
        rows of VQA v2 `question_id`, `image_id`, `question`, `answers`,
        `multiple_choice_answer` and `answer_type`.

    Raises:
        DataError: a file or record cannot be used.
        FileExistsError: the output is not empty.
    """
    output = Path(output)
    if not is_empty(output):
        raise FileExistsError(f"{output} exists already; choose another folder.")
    paths = [Path(one) for one in inputs]
    skipped: list[dict] = []
    tolerated = skipped if skip_broken else None
    with as_data_error():
        first = read_document(paths[0])
        if is_questions(first) or is_answers(first):
            rows = Questions(paths, tolerated).rows
        else:
            rows = image_rows(Annotations(paths, tolerated), split)
    if not rows:
        reason = skipped[0]["reason"] if skipped else "it is empty."
        raise DataError(f"{paths[0]} has no record that can be used; {reason}")
    known = columns_of(rows)
    table = Dataset.from_dict({name: [row.get(name) for row in rows] for name in known}, features=Features(known))

    def write(folder: Path) -> None:
        with without_progress_bars():
            table.save_to_disk(str(folder))
        (folder / SKIPPED).write_text(json.dumps(skipped, indent=2, ensure_ascii=False), encoding="utf-8")

    write_folder_atomically(output, write, manifest=False)
    return TableResult(len(rows), list(known), skipped)


def columns_of(rows: Sequence[dict]) -> dict:
    """Returns the types of the columns in which at least one row has a value."""
    return {name: kind for name, kind in COLUMNS.items() if any(row.get(name) is not None for row in rows)}


def image_rows(annotations: Annotations, split: str | None) -> list[dict]:
    rows = []
    for place, image in enumerate(annotations.images):
        width, height = image.size or (None, None)
        rows.append(
            {
                "image_id": next(iter(image.ids.values()), place),
                "file_name": image.name,
                "captions": image.captions or None,
                "split": image.split or split,
                "width": width,
                "height": height,
            }
        )
    return rows
