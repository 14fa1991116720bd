"""The command `hf-ngsan answer`: answers to questions about image files or the images of a dataset."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..io.messages import printable
from . import arguments
from .arguments import add_shared, positive_int, user_path

SUMMARY = """Answer questions about images.

Ask one question about one image, or give a file or a dataset of questions. Each line of the output has the name of an
image or the id of a question, an answer and its score, separated by tabs."""
EPILOG = """examples:
  hf-ngsan answer "What color is the bus?" --image photo.jpg --model runs/vqa --top-k 3
  hf-ngsan answer --questions questions.jsonl --model runs/vqa
  hf-ngsan answer --data nlvr:NLVR,images=true --split test --limit 5 --model runs/nlvr --save-attention figures

A file of questions has one JSON object per line: {"image": "photo.jpg", "question": "What color is the bus?"}. Image
paths are relative to the folder of this file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("question", nargs="?", metavar="QUESTION", help="question about the image of --image")
    add_shared(parser, "--model")
    add("--image", type=user_path, metavar="FILE", help="image file or URL for QUESTION")
    add("--questions", type=user_path, metavar="FILE.jsonl", help="file with one question per line, described below")
    add_shared(parser, "--data", required=False)
    add_shared(parser, "--split", "--limit", "--skip-errors")
    add("--top-k", type=positive_int, default=1, metavar="K", help="number of answers per question")
    add_shared(parser, "--batch-size", default=64)
    add("--output", type=user_path, metavar="FILE.json", help="write the answers to --data as a VQA result file")
    add("--json", action="store_true", help="print one JSON object per line, with question, answers and scores")
    add("--save-attention", type=user_path, metavar="DIR", help="folder for a figure of the attention per question")


def run(options: argparse.Namespace) -> int:
    check(options)
    from ..io.files import write_output
    from ..tasks.captioning_files import skipped_error
    from ..tasks.question_answering import answer_questions

    model, processor = arguments.load_on_device(options.model, "visual_question_answering")
    questions, names = inputs_of(options, model, processor)
    more = {"attention_folder": options.save_attention, "on_error": "skip"}
    more |= arguments.pick(options, "top_k", "batch_size")
    results = answer_questions(model, processor, questions, names, **more)
    written, skipped, number = [], 0, 0
    for name, answers, error in results:
        number += 1
        if error is not None:
            skipped += 1
            print(f"hf-ngsan: skipped {printable(name)}: {skipped_error(error, options.skip_errors)}", file=sys.stderr)
        if answers and options.output:
            written.append({"question_id": int(name), "answer": answers[0][0]})
        if options.json:
            ranked = [{"answer": answer, "score": score} for answer, score in answers]
            print(arguments.json_of({"question": name, "answers": ranked, "error": error}), flush=True)
        else:
            for answer, score in answers:
                print(f"{printable(name)}\t{answer}\t{score:.4f}", flush=True)
    if options.output:
        write_output(options.output, json.dumps(written) + "\n")
    if skipped:
        print(f"hf-ngsan: {skipped} questions were skipped.", file=sys.stderr)
    return 2 if skipped and skipped == number else 0


def check(options: argparse.Namespace) -> None:
    """Raises an error for options that exclude or require each other, and for missing files."""
    if sum(source is not None for source in (options.image, options.questions, options.data)) != 1:
        raise ValueError("Give exactly one of --image, --questions and --data.")
    if (options.question is None) != (options.image is None):
        raise ValueError("A question on the command line needs --image, and --image a question; give both.")
    if options.output and options.data is None:
        raise ValueError("--output needs a dataset; give one with --data.")
    arguments.check_outputs({"--output": options.output}, [options.data])
    arguments.check_files(options.image, options.questions)
    arguments.check_figures("--save-attention", options.save_attention, [options.image, options.data])


def inputs_of(options: argparse.Namespace, model: Any, processor: Any) -> tuple[Any, Iterable[str]]:
    """Returns rows of images and questions, and the name of each."""
    from ..data.coco_files import read_json_lines
    from ..tasks.caption_rows import check_drawable
    from ..tasks.question_answering import column, load_questions, questions_for, rows_of_images

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
    rows = questions_for(model, processor, rows, options.data, keep_images=options.save_attention is not None)
    if options.save_attention is not None:
        check_drawable(rows_of_images(rows), options.data, options.split)
    return rows, map(str, column(rows, "question_id" if "question_id" in rows.column_names else "image_id"))
