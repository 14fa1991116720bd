"""VQA v2: files of questions, and of the ten answers that people gave to each."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...ground.coco_files import CocoFileError, Record, check_encodable, checked_record, records_of
from ..errors import DataError
from .annotations import read_document

NUM_ANSWERS = 10


def is_questions(document: object) -> bool:
    return isinstance(document, dict) and "questions" in document


def is_answers(document: object) -> bool:
    annotations = document.get("annotations") if isinstance(document, dict) else None
    return isinstance(annotations, list) and any("question_id" in one for one in annotations if isinstance(one, dict))


class Questions:
    """The questions of some files, with their answers.

    Args:
        paths: of the files, of questions or of answers.
        skipped: gets `{"image_id", "file_name", "reason"}` of broken records; if None, these are errors.
        alone: whether a file of answers is looked at without its questions.

    Attributes:
        rows: `question_id`, `image_id`, `question` and, where there are files of answers, `answers`,
            `multiple_choice_answer` and, where they say it, `answer_type`.

    Raises:
        DataError: a file or, unless they are skipped, a record cannot be used; or a question has no answer, or an
            answer no question.
    """

    def __init__(self, paths: Sequence[Path], skipped: list[dict] | None, alone: bool = False) -> None:
        self.skipped = skipped
        documents = [(path, read_document(path)) for path in paths]
        for path, document in documents:
            if not (is_questions(document) or is_answers(document)):
                raise DataError(f"{path} holds neither questions nor answers of VQA v2; convert it apart.")
        of_answers = [(path, document) for path, document in documents if not is_questions(document)]
        questions = dict(self.read_all(documents, "questions", read_question))
        answers = dict(self.read_all(of_answers, "annotations", read_answers))
        if alone and not questions:
            questions = {number: dict(one) for number, one in answers.items()}
        if not questions:
            raise DataError(f"{paths[0]} has answers without questions; give the file of the questions too.")
        self.has_answers = bool(of_answers)
        self.check_pairs(questions, answers)
        self.rows = [
            {**question, **answers.get(number, {})}
            for number, question in questions.items()
            if number in answers or not self.has_answers
        ]

    def read_all(self, documents: Sequence, key: str, read: Callable[[Record], dict]) -> Iterator[tuple[int, dict]]:
        for path, document in documents:
            if key not in document or (key == "annotations") == is_questions(document):
                continue
            places: dict[int, str] = {}
            for record in records_of(document, key, path):
                try:
                    row = read(record)
                    if row["question_id"] in places:
                        before = places[row["question_id"]]
                        raise DataError(f"{record.where}: question_id {row['question_id']} is in {before} already.")
                except (DataError, CocoFileError) as error:
                    self.refuse(record.fields.get("image_id"), record.where, error)
                    continue
                places[row["question_id"]] = record.where
                yield row["question_id"], {**row, "where": record.where}

    def check_pairs(self, questions: dict[int, dict], answers: dict[int, dict]) -> None:
        """Refuses answers of no question, of another image's, and questions without answers."""
        for number, answer in list(answers.items()):
            question, where, image_id = questions.get(number), answer.pop("where"), answer["image_id"]
            if question is None or question["image_id"] != image_id:
                reason = "matches no question" if question is None else f"is of image {question['image_id']}"
                self.refuse(image_id, where, DataError(f"{where}: question_id {number} {reason}."))
                del answers[number]
        for number, question in questions.items():
            where = question.pop("where")
            if self.has_answers and number not in answers:
                self.refuse(question["image_id"], where, DataError(f"{where}: question_id {number} has no answers."))

    def refuse(self, image_id: object, where: str, error: ValueError) -> None:
        if self.skipped is None:
            raise DataError(f"{str(error).rstrip('.')} (--skip-broken leaves it out).") from None
        self.skipped.append({"image_id": image_id, "file_name": where, "reason": str(error)})


def read_question(record: Record) -> dict:
    text = record.string("question")
    check_encodable(text, record.where, "question")
    if not text.strip():
        raise DataError(f"{record.where}: question is empty.")
    return {"question_id": record.integer("question_id"), "image_id": record.integer("image_id"), "question": text}


def read_answers(record: Record) -> dict:
    answers = record.fields.get("answers")
    if not isinstance(answers, list) or len(answers) != NUM_ANSWERS:
        number = len(answers) if isinstance(answers, list) else "no"
        raise DataError(f"{record.where}: there are {number} answers; each question has {NUM_ANSWERS}.")
    texts = [
        checked_record(f"{record.where}, answers[{place}]", one).string("answer") for place, one in enumerate(answers)
    ]
    best = record.string("multiple_choice_answer")
    kind = record.string("answer_type") if record.fields.get("answer_type") is not None else None
    for text in (*texts, best, kind or ""):
        check_encodable(text, record.where, "answers")
    return {
        "question_id": record.integer("question_id"),
        "image_id": record.integer("image_id"),
        "answers": texts,
        "multiple_choice_answer": best,
        "answer_type": kind,
    }
