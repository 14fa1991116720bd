"""Files of VQA v2: questions, and the ten answers that people gave to each.

```python
Questions([Path("questions.json"), Path("annotations.json")], skipped=None).rows[0]["question"]
```
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..coco_files import Record, records_of
from ..errors import DataError
from .annotation_files import AnnotationEntry, has_any, read_all, read_document, refuse_record

NUM_ANSWERS = 10
"""Answers of each question of VQA (Antol et al. 2015)."""


def is_questions(document: object) -> bool:
    return isinstance(document, dict) and "questions" in document


def is_answers(document: object) -> bool:
    return isinstance(document, dict) and has_any(document.get("annotations"), "question_id")


class Questions:
    """The questions of some files, with their answers.

    Args:
        paths: files of questions and of answers.
        skipped: gets `{"image_id", "file_name", "reason"}` of broken records; if None, these are errors.
        alone: whether a file of answers may be read without its questions.

    Attributes:
        rows: `question_id`, `image_id`, `question` and, with files of answers, `answers`, `multiple_choice_answer`
            and, if present, `answer_type`.

    Raises:
        DataError: a file or, unless they are skipped, a record cannot be used; or a question has no answer, or an
            answer no question.
    """

    def __init__(self, paths: Sequence[Path], skipped: list[dict] | None, alone: bool = False) -> None:
        self.skipped = skipped
        documents = {path: read_document(path) for path in paths}
        for path, document in documents.items():
            if not (is_questions(document) or is_answers(document)):
                raise DataError(f"{path} holds neither questions nor answers of VQA v2; convert it apart.")
        of_answers = {path: document for path, document in documents.items() if not is_questions(document)}
        of_questions = {path: document for path, document in documents.items() if path not in of_answers}
        questions = self.read(of_questions, "questions", read_question)
        answers = self.read(of_answers, "annotations", read_answers)
        if not of_questions:
            if not alone:
                raise DataError(f"{paths[0]} has answers without questions; give the file of the questions too.")
            questions = dict(answers)
        for number, (where, answer) in list(answers.items()):
            _, question = questions.get(number, (where, {}))
            if question.get("image_id") != answer["image_id"]:
                reason = f"is of image {question['image_id']}" if question else "matches no question"
                self.refuse(where, answer, reason)
                del answers[number]
        self.rows = []
        for number, (where, question) in questions.items():
            if number in answers:
                self.rows.append({**question, **answers[number][1]})
            elif of_answers:
                self.refuse(where, question, "has no answers")
            else:
                self.rows.append(question)

    def read(self, documents: dict, key: str, read_one: Callable[[Record], dict]) -> dict[int, tuple[str, dict]]:
        """Returns the records of a list in some files, with their places, by `question_id`."""
        found = {}
        for path, document in documents.items():
            entries = [
                AnnotationEntry(record.where, record.fields.get("image_id"), partial(read_one, record))
                for record in records_of(document, key, path)
            ]
            for where, row in read_all(entries, lambda row: f"question_id {row['question_id']}", self.skipped):
                found[row["question_id"]] = where, row
        return found

    def refuse(self, where: str, row: dict, reason: str) -> None:
        error = DataError(f"{where}: question_id {row['question_id']} {reason}.")
        refuse_record(row["image_id"], where, error, self.skipped)


def read_question(record: Record) -> dict:
    if not record.string("question").strip():
        raise record.error("question", "must have a word")
    return {**ids_of(record), "question": record.string("question")}


def read_answers(record: Record) -> dict:
    answers = record.records("answers")
    if len(answers) != NUM_ANSWERS:
        raise DataError(f"{record.where}: there are {len(answers)} answers; each question has {NUM_ANSWERS}.")
    return {
        "answers": [answer.string("answer") for answer in answers],
        "multiple_choice_answer": record.string("multiple_choice_answer"),
        "answer_type": None if record.fields.get("answer_type") is None else record.string("answer_type"),
        **ids_of(record),
    }


def ids_of(record: Record) -> dict[str, int]:
    return {name: record.integer(name) for name in ("question_id", "image_id")}
