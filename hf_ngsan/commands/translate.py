"""The command `hf-ngsan translate`: translates arguments, a file or the standard input."""

import argparse
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from . import arguments
from .arguments import add_shared, user_path

SUMMARY = "Translate sentences, one per line."
EPILOG = """examples:
  hf-ngsan translate --model runs/multi30k "A dog jumps over a log."
  hf-ngsan translate --model runs/multi30k --input test.en --output test.translated.de
  cat test.en | hf-ngsan translate --model runs/multi30k --num-beams 1 --batch-size 256

An empty line stays empty. A line is an error if it has more tokens than data.max_length of the training config. With
--skip-errors, the output has an empty line instead, and the number of such lines is printed at the end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="sentences to translate (default: lines from standard input)")
    add_shared(parser, "--model", "--json", "--output", *arguments.GENERATION, "--skip-errors")
    add("--input", type=user_path, metavar="FILE", help="UTF-8 text file with one sentence per line")
    add_shared(parser, "--batch-size", default=64)


def run(options: argparse.Namespace) -> int:
    if options.texts and options.input:
        raise ValueError("Give either sentences or a file of sentences (--input).")
    arguments.check_files(options.input)
    arguments.check_outputs({"--output": options.output}, [options.input])
    from ..data.parallel_text import decoded_lines, lines_of, name_lines
    from ..tasks.new_models import checked_generation
    from ..tasks.translation import count_tokens, translate_batch

    model, tokenizer = arguments.load_on_device(options.model, "translation")
    generation = checked_generation(arguments.generation_arguments(options), model.generation_config)
    sentences = options.texts or (options.input and lines_of(Path(options.input)))
    sentences = sentences or decoded_lines(sys.stdin.buffer, "the standard input")
    skipped: list[int] = []
    number, empty, longest, numbered = 0, 0, tokenizer.model_max_length, enumerate(sentences, start=1)
    with arguments.written_lines(options.output) as write:
        while lines := list(islice(numbered, options.batch_size)):
            translated: dict[int, tuple[str, Any]] = {number: ("", None) for number, _ in lines}
            filled = {number: line for number, line in lines if line.strip()}
            empty += len(lines) - len(filled)
            lengths = dict(zip(filled, count_tokens(tokenizer, list(filled.values())).tolist(), strict=True))
            too_long = [number for number, length in lengths.items() if length > longest]
            if too_long and not options.skip_errors:
                raise ValueError(
                    f"Line {too_long[0]} has {lengths[too_long[0]]} tokens; this model translates at most {longest}. "
                    "Shorten the line, or leave such lines empty with --skip-errors."
                )
            skipped += too_long
            filled = {number: line for number, line in filled.items() if number not in too_long}
            if filled:
                texts = list(filled.values())
                translations = translate_batch(model, tokenizer, texts, scores=options.json, **generation)
                translated |= dict(zip(filled, translations, strict=True))
            for number, line in lines:
                text, scores = translated[number]
                score, words = (None, []) if scores is None else scores
                record = {"text": line, "translation": text, "score": score, "words": words}
                write(arguments.json_of(record) if options.json else text)
    if empty:
        print(f"hf-ngsan: {empty} empty {'line stays' if empty == 1 else 'lines stay'} empty.", file=sys.stderr)
    if skipped:
        print(f"hf-ngsan: {name_lines(skipped)}: too long, so left empty ({len(skipped)} in total).", file=sys.stderr)
    return 2 if skipped and len(skipped) == number - empty else 0
