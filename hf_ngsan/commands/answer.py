"""The command `hf-ngsan answer`: answers to questions about image files or the images of a dataset."""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..io.messages import printable
from .arguments import (
    DATASETS,
    add_batch_size_argument,
    add_data_arguments,
    add_model_argument,
    add_skip_errors_argument,
    check_data,
    check_figure_folder,
    check_images,
    check_output_file,
    json_of,
    positive_int,
    user_path,
    whole_number,
)

SUMMARY = """Answer questions about images.

There is one question about one image, or a file or dataset of questions. Each line of the output has the name of an
image or the id of a question, an answer and its score, separated by tabs."""
EPILOG = f"""examples:
  hf-ngsan answer "What color is the bus?" --image photo.jpg --model runs/vqa --top-k 3
  hf-ngsan answer --questions questions.jsonl --model runs/vqa
  hf-ngsan answer --data nlvr:NLVR,images=true --split test --limit 5 --model runs/nlvr --save-attention figures
  hf-ngsan answer "There is a box with a circle." --data nlvr:NLVR --split test --image-id 8000 --model runs/nlvr
  hf-ngsan answer --data vqa:QUESTIONS,features=FEATURES --split test-dev2015 --model runs/small --output results.json

A file of questions has one JSON object a line: {{"image": "photo.jpg", "question": "What color is the bus?"}}. Paths of
images are relative to its folder.

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="question about --image or --image-id")
    add_model_argument(parser)
    parser.add_argument("--image", type=user_path, metavar="FILE", help="image file or URL")
    parser.add_argument(
        "--questions", type=user_path, metavar="FILE.jsonl", help="file of questions about images, one a line"
    )
    add_data_arguments(parser, required=False)
    parser.add_argument(
        "--image-id", type=whole_number, metavar="ID", help="ask the question about this image of --data"
    )
    parser.add_argument(
        "--top-k", type=positive_int, default=1, metavar="K", help="maximal number of answers (%(default)s)"
    )
    add_batch_size_argument(parser, 64)
    parser.add_argument(
        "--output",
        type=user_path,
        metavar="FILE.json",
        help="write the answers to --data in the format of VQA's results",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object a line: a question with its answers, and the probability of each by itself",
    )
    parser.add_argument(
        "--save-attention",
        type=user_path,
        metavar="DIR",
        help="write a figure for each question with the attention map of each of its words",
    )
    add_skip_errors_argument(parser, "an image that cannot be read")


def run(options: argparse.Namespace) -> int:
    check(options)
    from ..io.files import write_output
    from ..io.processes import make_accelerator
    from ..loading.models import load_model
    from ..tasks.captioning_files import skipped_error
    from ..tasks.question_answering import answer_questions

    model, processor = load_model(options.model, "visual_question_answering")
    questions, names = inputs_of(options, model, processor)
    results = answer_questions(
        model.to(make_accelerator().device),
        processor,
        questions,
        names,
        top_k=options.top_k,
        attention_folder=options.save_attention,
        on_error="skip",
        batch_size=options.batch_size,
    )
    written, skipped, number = [], 0, 0
    for name, answers, error in results:
        number += 1
        if error is not None:
            skipped += 1
            reason = skipped_error(error, options.skip_errors)
            print(f"hf-ngsan: skipped {printable(name)}: {reason}", file=sys.stderr)
        if answers and options.output:
            written.append({"question_id": int(name), "answer": answers[0][0]})
        if options.json:
            ranked = [{"answer": answer, "score": score} for answer, score in answers]
            print(json_of({"question": name, "answers": ranked, "error": error}), flush=True)
            continue
        for answer, score in answers:
            print(f"{printable(name)}\t{answer}\t{score:.4f}", flush=True)
    if options.output:
        write_output(options.output, json.dumps(written) + "\n")
    if skipped:
        print(f"hf-ngsan: {skipped} questions were skipped.", file=sys.stderr)
    return 2 if skipped and skipped == number else 0


def check(options: argparse.Namespace) -> None:
    """Raises a ValueError for options that exclude or need each other, and an OSError for missing files."""
    if sum(source is not None for source in (options.image, options.questions, options.data)) != 1:
        raise ValueError("The images are missing or ambiguous; give exactly one of --image, --questions and --data.")
    if options.image_id is not None and options.data is None:
        raise ValueError("--image-id names an image of a dataset; give the dataset with --data.")
    is_one = options.image is not None or options.image_id is not None
    if is_one and options.question is None:
        raise ValueError("The question about the image is missing; give it in quotation marks.")
    if options.question is not None and not is_one:
        raise ValueError("A question is about one image; name it with --image, or with --data and --image-id.")
    if options.output:
        if options.data is None or is_one:
            raise ValueError("--output is for the answers to all questions of a dataset; give --data alone.")
        check_output_file(options.output, inputs=[options.data])
    check_data(options.data)
    check_images([options.image])
    if options.questions is not None and not os.path.isfile(options.questions):
        raise FileNotFoundError(f"There is no file of questions {options.questions}.")
    if options.save_attention is not None:
        check_figure_folder(options.save_attention, "--save-attention", [options.image, options.data])


def inputs_of(options: argparse.Namespace, model: Any, processor: Any) -> tuple[Any, Iterable[str]]:
    """Returns rows of images and questions, and the name of each."""
    from ..data.coco_files import read_json_lines
    from ..tasks.caption_rows import check_drawable
    from ..tasks.question_answering import column, image_rows, load_questions, questions_for

    if options.image is not None:
        return [{"image": options.image, "question": options.question}], [options.image]
    if options.questions is not None:
        folder, asked = Path(options.questions).parent, []
        for record in read_json_lines(options.questions):
            image = record.string("image")
            place = image if "://" in image else str(folder / image)
            asked.append({"image": place, "question": record.string("question")})
        return asked, [row["image"] for row in asked]
    rows = load_questions(options.data, options.split, with_answers=False, limit=options.limit)
    draws = options.save_attention is not None
    rows = questions_for(model, processor, rows, options.data, keep_images=draws)
    if draws:
        check_drawable(image_rows(rows), options.data, options.split)
    if options.image_id is not None:
        places = [place for place, image in enumerate(column(rows, "image_id")) if image == options.image_id]
        if not places:
            raise ValueError(f"--image-id: {options.data}, split {options.split}, has no image {options.image_id}.")
        return [{**rows[places[0]], "question": options.question}], [str(options.image_id)]
    name = "question_id" if "question_id" in rows.column_names else "image_id"
    return rows, map(str, column(rows, name))
