"""The readers of questions about images: `vqa:DIR` (VQA v2 with features of its images) and `nlvr:DIR` (statements
about pictures of items in three boxes).
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from glob import glob
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value

from .annotations import has_any, listing, parse_records, refuse_record
from .coco_files import Record, read_json, read_json_lines, records_of
from .contract import lists_of_vectors
from .errors import DataError, naming_damage, note_of_left_out
from .images import OwnFiles
from .prepared import Rows, prepare
from .readers import names_of_split
from .saved import load_saved

NAMES_OF_SPLITS = {"train": "train2014", "validation": "val2014", "test": "test2015"}  # names in the official files
ROW_OF_IMAGE = "image_row"
NUM_ANSWERS = 10  # answers per question (Antol et al. 2015)
WIDTH, HEIGHT, SIDE, GAP, NUM_BOXES = 400, 100, 100, 50, 3  # pictures of NLVR and their boxes, in pixels
KINDS = ("square", "circle", "triangle", "box")
COLOURS = {"Black": "black", "Yellow": "yellow", "#0099ff": "blue"}
SIZES = {10: "small", 20: "medium", 30: "large"}
BLANK_FEATURE = np.zeros((1, len(KINDS) + len(COLOURS) + len(SIZES)), np.float32)
BLANK_REGION = BLANK_FEATURE, np.array([[0, 0, 1, 1]], np.float32), ["picture"]
"""Feature, box and name of a region without content: the whole picture."""
PART = re.compile(r"(?P<name>.+?)(?P<sign>[/-])(?P<directory>\d+)")
IDENTIFIER = re.compile(r"(\d{1,9})-(\d{1,3})")
COLUMNS = {
    "question_id": Value("int64"),
    "image_id": Value("int64"),
    "question": Value("string"),
    "answers": List(Value("string")),
    "multiple_choice_answer": Value("string"),
    "answer_type": Value("string"),
}


def load_vqa(directory: str, split: str, features: str | None = None, skip_errors: bool = False) -> Dataset:
    """Loads the questions of one split of VQA v2 with the columns of their images, which are stored once, from the
    folder `features`.

    Unusable records, and questions about images without features, are an error; with `skip_errors`, they are left out
    and counted in a warning.
    """
    if features is None:
        raise DataError(f"vqa:{directory} needs features; write vqa:{directory},features=DIR.")
    files = find_question_files(Path(directory), split)
    parts = [skip_errors, *map(str, files), *files]
    questions = prepare("vqa", 1, split, parts, lambda: question_rows(files, split, skip_errors))
    images = load_saved(features, None)
    questions = with_rows_of_images(questions, images, features, skip_errors)
    joined = WithImages(images.remove_columns([name for name in images.column_names if name in questions.column_names]))
    return questions.with_transform(joined)


def find_question_files(directory: Path, split: str) -> list[Path]:
    name = NAMES_OF_SPLITS.get(split, split)
    own_files, patterns = OwnFiles(directory), ("*questions.json", "*annotations.json")
    known = [sorted(directory / name for name in glob(pattern, root_dir=directory)) for pattern in patterns]
    questions, answers = ([file for file in files if f"_{name}_" in f"_{file.name}"] for files in known)
    if len(questions) != 1 or len(answers) > 1:
        listed = ", ".join(file.name for files in known for file in files) or "none"
        needed = f"one file *_{name}_questions.json for the split {split!r}, and at most one of annotations"
        raise DataError(f"{directory} must have {needed}; available: {listed}.")
    return [Path(own_files.find(file.name, str(directory))) for file in questions + answers]


def question_rows(files: list[Path], split: str, skip_errors: bool) -> Rows:
    skipped: list[dict] = []
    rows, notes = read_questions(files, skipped), []
    if skipped:
        places = listing([entry["file_name"].rpartition(", ")[2] for entry in skipped])
        reason = skipped[0]["reason"].rstrip(".")
        lack = f"{len(skipped)} records of {files[0].parent}, split {split}, cannot be used ({places}); first: {reason}"
        notes = [note_of_left_out(lack, skip_errors, "skip_errors=true")]
    columns = used_columns(rows, COLUMNS)
    return Rows(columns, ({name: row.get(name) for name in columns} for row in rows), len(rows), notes)


def used_columns(rows: Sequence[dict], columns: dict[str, Any]) -> Features:
    """Returns the columns in which at least one row has a value."""
    return Features({name: kind for name, kind in columns.items() if any(row.get(name) is not None for row in rows)})


def with_rows_of_images(questions: Dataset, images: Dataset, features: str, skip_errors: bool) -> Dataset:
    """Adds a column with the row of each question's image; questions without image are errors or left out."""
    rows = {image_id: row for row, image_id in enumerate(images.with_format(None)["image_id"])}
    if len(rows) < len(images):
        raise DataError(f"{features} has several images with the same image_id, of different splits.")
    image_ids = questions.with_format(None)["image_id"][:]
    places = np.array([rows.get(image_id, -1) for image_id in image_ids], dtype=np.int64)
    if len(missing := np.flatnonzero(places < 0)):
        ids = dict.fromkeys(image_ids[row] for row in missing)
        number = f"{len(missing)} of {len(places)} questions"
        lack = f"{number} are about images without features in {features} ({listing(ids)})"
        skips = skip_errors and len(missing) < len(places)
        warnings.warn(note_of_left_out(lack, skips, "skip_errors=true"), stacklevel=4)
        questions = questions.select(np.flatnonzero(places >= 0))
        places = places[places >= 0]
    return questions.add_column(ROW_OF_IMAGE, places)


class WithImages:
    """Transform that adds the columns of their images to questions when they are read."""

    def __init__(self, images: Dataset) -> None:
        self.images = images

    def __call__(self, questions: dict[str, list]) -> dict[str, list]:
        if ROW_OF_IMAGE not in questions:  # only other columns are read
            return questions
        rows = self.images.__getitems__(questions.pop(ROW_OF_IMAGE))
        return {**questions, **{name: [row[name] for row in rows] for name in self.images.column_names}}


def is_questions(document: object) -> bool:
    return isinstance(document, dict) and "questions" in document


def is_answers(document: object) -> bool:
    return isinstance(document, dict) and has_any(document.get("annotations"), "question_id")


def read_file(path: Path, skipped: list[dict] | None) -> tuple[bool, dict[int, tuple[Record, dict]]]:
    """Returns whether a file of VQA v2 has answers instead of questions, and its records and rows by question."""
    document = read_json(path)
    has_answers = is_answers(document)
    records = records_of(document, "annotations" if has_answers else "questions", path)
    rows = parse_records(records, read_answers if has_answers else read_question, itemgetter("question_id"), skipped)
    return has_answers, {row["question_id"]: (record, row) for record, row in rows}


def read_questions(paths: Sequence[Path], skipped: list[dict] | None) -> list[dict]:
    """Reads the questions and answers in files of VQA v2. Broken records, questions without answers and answers without
    question are added to `skipped`, or are errors if it is None."""
    questions: dict[int, tuple[Record, dict]] = {}
    answers: dict[int, tuple[Record, dict]] = {}
    has_answers = False
    for path in paths:
        holds_answers, rows = read_file(path, skipped)
        has_answers |= holds_answers
        (answers if holds_answers else questions).update(rows)
    for number, (record, answer) in list(answers.items()):
        _, question = questions.get(number, (record, {}))
        if question.get("image_id") != answer["image_id"]:
            reason = f"is about image {question['image_id']}" if question else "matches no question"
            refuse_record(record, DataError(f"{record.where}: question_id {number} {reason}."), skipped)
            del answers[number]
    joined = []
    for number, (record, question) in questions.items():
        if has_answers and number not in answers:
            refuse_record(record, DataError(f"{record.where}: question_id {number} has no answers."), skipped)
        else:
            joined.append({**question, **answers[number][1]} if has_answers else question)
    return joined


def read_question(record: Record) -> dict:
    if not record.text("question"):
        raise record.error("question", "must have at least one word")
    return {**ids_of(record), "question": record.fields["question"]}


def read_answers(record: Record) -> dict:
    answers = record.records("answers")
    if len(answers) != NUM_ANSWERS:
        raise DataError(f"{record.where}: there are {len(answers)} answers; each question needs {NUM_ANSWERS}.")
    return {
        "answers": [answer.string("answer") for answer in answers],
        "multiple_choice_answer": record.string("multiple_choice_answer"),
        "answer_type": None if record.fields.get("answer_type") is None else record.string("answer_type"),
        **ids_of(record),
    }


def ids_of(record: Record) -> dict[str, int]:
    return {name: record.integer(name) for name in ("question_id", "image_id")}


def load_nlvr(
    directory: str, split: str, positions: bool = False, regions: bool = True, images: bool = False
) -> Dataset:
    """Loads one split of NLVR, or a part such as `dev/5` or `dev-5`, with the structured scenes as regions (Suhr et al.
    2017).

    The regions of a picture are its items and its three grey boxes. The feature of a region is one-hot: its kind
    (square, circle, triangle, box), its colour and its size. Its position is only in `visual_boxes`, unless
    `positions` are added.
    """
    file, sign, part = find_part(Path(directory), split)
    settings = (positions, regions, images)
    parts = [str(file.absolute()), *settings, file]
    return prepare("nlvr", 1, split, parts, lambda: statement_rows(file, split, sign, part, *settings))


def find_part(directory: Path, split: str) -> tuple[Path, str, str]:
    """Returns the file of a split and, for a part such as `dev/5` or `dev-5`, the sign and the directory."""
    readings = [(split, "", "")]
    if match := PART.fullmatch(split):
        readings.append((match["name"], match["sign"], match["directory"]))
    for base, sign, part in readings:
        for name in names_of_split(base):
            if (directory / name / f"{name}.json").is_file():
                return Path(OwnFiles(directory).find(f"{name}/{name}.json", str(directory))), sign, part
    known = ", ".join(sorted(file.parent.name for file in directory.glob("*/*.json") if file.stem == file.parent.name))
    raise DataError(f"{directory} has no split {split!r}; available: {known or 'none, such as dev/dev.json'}.")


def statement_rows(file: Path, split: str, sign: str, part: str, positions: bool, regions: bool, images: bool) -> Rows:
    records = read_json_lines(file)
    if sign:
        records = [record for record in records if (str(record.fields["directory"]) == part) == (sign == "/")]
    if not records:
        raise DataError(f"{file} has no examples in the split {split!r}; its directories are numbers such as 0.")
    feature_size = len(KINDS) + len(COLOURS) + len(SIZES) + 4 * positions
    own_files = OwnFiles(file.parent)
    columns = {name: COLUMNS[name] for name in ("question_id", "image_id", "question", "answers")} | {
        "visual_features": lists_of_vectors(feature_size, "float32"),
        "visual_boxes": lists_of_vectors(4, "float32"),
        "objects": List(Value("string")),
        "width": Value("int32"),
        "height": Value("int32"),
        "split": Value("string"),
    }
    if images:
        columns["image"] = Image()

    def rows() -> Iterator[dict[str, Any]]:
        for record in records:
            with naming_damage(record.where):
                match = IDENTIFIER.fullmatch(record.string("identifier"))
                boxes = record.fields["structured_rep"]
                if match is None or len(boxes) != NUM_BOXES or record.fields["label"] not in ("true", "false"):
                    raise DataError(f"{record.where}: identifier, label or structured_rep is not valid for NLVR.")
                features, places, names = item_regions(boxes) if regions else BLANK_REGION
            number = int(match[1]) * 1000 + int(match[2])
            row = {"question_id": number, "image_id": number, "question": record.string("sentence")}
            row["answers"] = [record.fields["label"]]
            row["visual_features"] = np.concatenate([features, places], axis=1) if positions else features
            row |= {"visual_boxes": places, "objects": names, "width": WIDTH, "height": HEIGHT, "split": split}
            if images:
                # boxes in the order of the structured scene
                picture = f"images/{record.fields['directory']}/{file.stem}-{match[0]}-0.png"
                row["image"] = {"bytes": Path(own_files.find(picture, record.where)).read_bytes(), "path": None}
            yield row

    return Rows(Features(columns), rows(), len(records))


def item_regions(boxes: list[list[dict[str, Any]]]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns features, boxes and names of the items in three boxes and of the boxes around them."""
    items = [(item, box) for box, items in enumerate(boxes) for item in items]
    features = np.zeros((len(items) + NUM_BOXES, len(KINDS) + len(COLOURS) + len(SIZES)), dtype=np.float32)
    corners, names = [], []
    for row, (item, box) in enumerate(items):
        kind, colour, size = item["type"], item["color"], item["size"]
        features[row, KINDS.index(kind)] = 1
        features[row, len(KINDS) + list(COLOURS).index(colour)] = 1
        features[row, len(KINDS) + len(COLOURS) + list(SIZES).index(size)] = 1
        left, top = item["x_loc"] + box * (SIDE + GAP), item["y_loc"]
        corners.append([left, top, left + size, top + size])
        names.append(f"{SIZES[size]} {COLOURS[colour]} {kind}")
    for box in range(NUM_BOXES):
        features[len(items) + box, KINDS.index("box")] = 1
        corners.append([box * (SIDE + GAP), 0, box * (SIDE + GAP) + SIDE, HEIGHT])
        names.append("box")
    sides = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], dtype=np.float32)
    return features, np.array(corners, dtype=np.float32) / sides, names
