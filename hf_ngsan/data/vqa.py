"""The reader of `vqa:DIR`: questions of VQA v2, each with the features of its image.

```python
load_vqa("vqa", "train", features="features")[0]["question"]  # "What is this photo taken looking through?"
```
"""

import warnings
from pathlib import Path

import numpy as np
from datasets import Dataset, Features

from .annotation_tables import columns_of
from .errors import DataError, as_data_error
from .formats.annotations import listing
from .formats.vqa_v2 import Questions
from .prepared import Rows, fingerprint, prepare
from .saved import load_saved

NAMES_OF_SPLITS = {"train": "train2014", "validation": "val2014", "val": "val2014", "test": "test2015"}
"""Words for the splits in the names of the official files; other splits keep their names."""
ROW_OF_IMAGE = "image_row"


def load_vqa(directory: str, split: str, features: str | None = None, skip_broken: bool = False) -> Dataset:
    """Loads the questions of one split, each with the regions of its image.

    The features of an image are read with each question about it, and stored once.

    Args:
        directory: folder of the official files, such as `v2_OpenEnded_mscoco_train2014_questions.json` and
            `v2_mscoco_train2014_annotations.json`; a split without annotations has no answers.
        split: `train`, `validation` (or `val`), `test`, or another part of the files' names, such as `test-dev2015`.
        features: folder of the features of their images, of any split, found by `image_id`.
        skip_broken: whether to leave out records that cannot be used, and questions whose image has no features,
            with a warning that counts them, instead of raising an error.

    Returns:
        `datasets.Dataset` with `question_id`, `image_id`, `question` and, if known, `answers` (of ten people),
        `multiple_choice_answer` (the most common) and `answer_type`; each row that is read also has the columns of
        its image in the folder of features, such as `visual_features` and `visual_boxes`.

    Raises:
        DataError: a file is missing or cannot be used, or an image has no features.
    """
    if features is None:
        raise DataError(
            f"vqa:{directory} names no features; write vqa:{directory},features=DIR with a folder that hf-ngsan "
            "convert or hf-ngsan extract wrote."
        )
    files = find_question_files(Path(directory), split)
    key = fingerprint("vqa", split, skip_broken, *map(str, files), *files)
    questions = prepare("vqa", key, split, lambda: read_questions(files, split, skip_broken))
    images = load_saved(features, None)
    if "image_id" not in images.column_names:
        raise DataError(f"{features} has no column image_id, by which questions find their image.")
    questions = with_rows_of_images(questions, images, features, skip_broken)
    joined = WithImages(images.remove_columns([name for name in images.column_names if name in questions.column_names]))
    return questions.with_transform(joined)


def find_question_files(directory: Path, split: str) -> list[Path]:
    """Returns the file of questions of a split and, if it exists, the file of answers."""
    if not directory.is_dir():
        raise DataError(f"{directory} is not a folder; give the one with the question files of VQA v2.")
    name = NAMES_OF_SPLITS.get(split, split)
    found = []
    for kind in ("questions", "annotations"):
        files = sorted(file for file in directory.glob(f"*{kind}.json") if f"_{name}_" in f"_{file.name}")
        if len(files) > 1:
            raise DataError(f"{directory} has several files of {kind} of {name}: {files[0].name}, {files[1].name}.")
        found += files
    if not found or not found[0].name.endswith("questions.json"):
        known = ", ".join(sorted(file.name for file in directory.glob("*questions.json"))) or "none"
        raise DataError(f"{directory} has no split {split!r}: no file *_{name}_questions.json; there is {known}.")
    return found


def read_questions(files: list[Path], split: str, skip_broken: bool) -> Rows:
    skipped: list[dict] = []
    with as_data_error():
        rows = Questions(files, skipped).rows
    notes = []
    if skipped:
        places = listing([one["file_name"].rpartition(", ")[2] for one in skipped])
        reason = skipped[0]["reason"].rstrip(".")
        lack = f"{len(skipped)} records of {files[0].parent}, split {split}, cannot be used ({places}); first, {reason}"
        if not skip_broken:
            raise DataError(f"{lack}; correct them, or leave them out with skip_broken=true.")
        notes = [f"{lack}; they were left out."]
    if not rows:
        raise DataError(f"{files[0]} has no question that can be used.")
    columns = columns_of(rows)
    return Rows(Features(columns), ({name: row.get(name) for name in columns} for row in rows), len(rows), notes)


def with_rows_of_images(questions: Dataset, images: Dataset, features: str, skip_broken: bool) -> Dataset:
    """Adds a column with the row of each question's image; questions without one are refused or left out."""
    rows = {image_id: row for row, image_id in enumerate(images.with_format(None)["image_id"])}
    found = np.array([rows.get(image_id, -1) for image_id in questions.with_format(None)["image_id"]], dtype=np.int64)
    if len(missing := np.flatnonzero(found < 0)):
        ids = dict.fromkeys(questions.select(missing).with_format(None)["image_id"])
        lack = (
            f"{len(missing)} of {len(found)} questions are about images without features in {features} ({listing(ids)})"
        )
        if not skip_broken:
            raise DataError(f"{lack}; add them, or leave these questions out with skip_broken=true.")
        if len(missing) == len(found):
            raise DataError(f"{lack}; give the folder of the features of these images.")
        warnings.warn(f"{lack}; they were left out.", stacklevel=4)
        questions = questions.select(np.flatnonzero(found >= 0))
        found = found[found >= 0]
    return questions.add_column(ROW_OF_IMAGE, found)


class WithImages:
    """Adds the columns of their images to questions when they are read.

    Args:
        images: a dataset of images.
    """

    def __init__(self, images: Dataset) -> None:
        self.images = images

    def __call__(self, questions: dict[str, list]) -> dict[str, list]:
        if ROW_OF_IMAGE not in questions:  # only other columns are read
            return questions
        rows = self.images.__getitems__(questions.pop(ROW_OF_IMAGE))
        return {**questions, **{name: [row[name] for row in rows] for name in self.images.column_names}}
