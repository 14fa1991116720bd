"""The command `hf-ngsan evaluate`: captions of a split and their scores."""

import argparse
import json

from .arguments import (
    DATASETS,
    add_data_arguments,
    add_generation_arguments,
    add_launch_argument,
    add_model_argument,
    check_output_file,
    generation_options,
    user_path,
)

SUMMARY = "Caption a split, score the captions, and print the scores as JSON."
EPILOG = f"""examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_data_arguments(parser)
    add_generation_arguments(parser)
    parser.add_argument(
        "--output", type=user_path, metavar="FILE.json", help="write the captions there, in the COCO result format"
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="METRIC",
        help="of bleu, rouge_l, cider_d, cider, meteor, spice (all but the last two, which need Java)",
    )
    add_launch_argument(parser)


def check(options: argparse.Namespace) -> None:
    from ..loading import load_config

    if options.output:
        check_output_file(options.output)
    load_config(options.model, "captioning")


def run(options: argparse.Namespace) -> None:
    from ..data import extra_scores_of
    from ..launching import leave_process_group, make_accelerator
    from ..loading import load_captioner
    from ..tasks import evaluate_captioner
    from ..tasks.caption_rows import load_rows, rows_for

    if options.output:
        check_output_file(options.output)
    accelerator = make_accelerator()
    model, processor = load_captioner(options.model)
    rows = rows_for(model, processor, load_rows(options.data, options.split, limit=options.limit), options.data)
    evaluation = evaluate_captioner(
        model.to(accelerator.device),
        processor,
        rows,
        accelerator,
        metrics=options.metrics,
        extra_scores=extra_scores_of(options.data),
        batch_size=options.batch_size,
        **generation_options(options),
    )
    if accelerator.is_main_process:
        if options.output:
            evaluation.save(options.output)
        print(json.dumps(evaluation.scores, indent=2))
    leave_process_group()
