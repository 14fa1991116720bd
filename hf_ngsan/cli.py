"""The command `hf-ngsan`: parses, calls, prints. Errors that a user can mend are one sentence and exit code 2."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence

from .extraction.command import EPILOG as EXTRACT_EPILOG
from .extraction.command import add_extract_arguments, check_extract, positive_int, run_extract
from .messages import sentence
from .metrics.command import EPILOG as SCORE_EPILOG
from .metrics.command import add_score_arguments, run_score
from .visualization import MissingPlotsError

DESCRIPTION = "Geometry-aware image captioning: train, evaluate and use captioners. Every command has --help."
EXAMPLES = """examples:
  hf-ngsan demo
  hf-ngsan train --config examples/configs/ngsan/scenes.yaml training.epochs=5
  hf-ngsan evaluate --model runs/scenes --data scenes --split test --output captions.json
  hf-ngsan caption --model runs/scenes --data scenes --split test --limit 5
  hf-ngsan caption --model runs/spatial photo.jpg
  hf-ngsan extract --images photos --backbone microsoft/resnet-50 --output features

data sets: scenes, scenes:size=2000,seed=1, coco-layout:DIR, features:DIR
"""
DATA_HELP = "data set: scenes, scenes:size=2000,seed=1, coco-layout:DIR or features:DIR"
MODEL_HELP = "folder of a model, folder of a training run (its best model is taken), or name on the Hub"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 after an error of the user's, 130 after Ctrl-C."""
    options = parse(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hf_ngsan").setLevel(logging.INFO)
    try:
        if getattr(options, "can_be_launched", False):
            launch(options, sys.argv[1:] if arguments is None else list(arguments))
        return options.run(options) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, MissingPlotsError) as error:
        if options.debug:
            raise
        print(f"hf-ngsan: error: {sentence(error)}", file=sys.stderr)
        return 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line on which key=value may stand on both sides of an option, which argparse alone refuses."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not (hasattr(options, "overrides") and all("=" in word and word[0] != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def launch(options: argparse.Namespace, arguments: list[str]):
    from .launching import launch_processes

    launch_processes(["-m", "hf_ngsan.cli", *arguments], options.num_processes, lambda: options.check(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hf-ngsan",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = add_command(
        commands,
        "demo",
        run_demo,
        "Train SAN and NG-SAN on drawn scenes in a few minutes, compare them, write captions and a figure.",
        "examples:\n  hf-ngsan demo\n  hf-ngsan demo --output runs/another --seed 1",
    )
    demo.add_argument("--output", default="runs/demo", metavar="DIR", help="folder of the results (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of scenes and weights (%(default)s)")
    demo.add_argument("--retrain", action="store_true", help="train again what is trained already")

    train = add_command(
        commands,
        "train",
        run_train,
        "Train a captioner by a recipe.",
        "examples:\n"
        "  hf-ngsan train --config examples/configs/ngsan/scenes.yaml\n"
        "  hf-ngsan train --config examples/configs/ngsan/coco_layout.yaml data.spec=coco-layout:DIR training.seed=1\n"
        "  hf-ngsan train --config examples/configs/ngsan/coco_layout.yaml data.spec=coco-layout:DIR --resume\n"
        "  hf-ngsan train --config examples/configs/ngsan/scenes.yaml --stage auto",
    )
    add_train_arguments(train)

    evaluate = add_command(
        commands,
        "evaluate",
        run_evaluate,
        "Caption a split, score the captions, and print the scores as JSON.",
        "examples:\n  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json",
    )
    add_captioning_arguments(evaluate)
    evaluate.add_argument("--output", metavar="FILE.json", help="write the captions there, in the COCO result format")
    evaluate.add_argument(
        "--metrics",
        nargs="+",
        metavar="METRIC",
        help="of bleu, rouge_l, cider_d, cider, meteor, spice (all but the last two, which need Java)",
    )
    add_launch_argument(evaluate, check_evaluate)

    caption = add_command(
        commands,
        "caption",
        run_caption,
        "Print a caption for each image file, or for each image of a data set: its name or id, a tab, the caption.",
        "examples:\n"
        "  hf-ngsan caption --model runs/spatial photo.jpg another.png --save-attention maps\n"
        "  hf-ngsan caption --model runs/scenes --data scenes --split test --limit 5",
    )
    caption.add_argument("images", nargs="*", metavar="IMAGE", help="image files, for a model with a vision part")
    add_captioning_arguments(caption, needs_data=False)
    caption.add_argument("--limit", type=positive_int, metavar="N", help="caption the first N images only")
    caption.add_argument("--text", metavar="WORDS", help="what every caption begins with (IMAGE only)")
    caption.add_argument(
        "--save-attention", metavar="DIR", help="write there, for each IMAGE, where each word of its caption looked"
    )
    caption.add_argument("--skip-errors", action="store_true", help="go on after an IMAGE that cannot be read")

    extract = add_command(
        commands,
        "extract",
        run_extract,
        "Extract visual features of images into a folder that training and evaluation read as features:DIR.",
        EXTRACT_EPILOG,
    )
    add_extract_arguments(extract)
    add_launch_argument(extract, check_extract)

    score = add_command(
        commands,
        "score",
        run_score,
        "Score captions in a COCO result file against a COCO caption file.",
        SCORE_EPILOG,
    )
    add_score_arguments(score)
    return parser


def add_command(commands, name: str, run, summary: str, epilog: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of every error")
    parser.set_defaults(run=run)
    return parser


def add_train_arguments(parser: argparse.ArgumentParser):
    parser.add_argument("--config", required=True, metavar="FILE", help="recipe, a YAML file")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="change the recipe: training.epochs=3, or epochs=3 where the key is unambiguous",
    )
    parser.add_argument(
        "--stage",
        choices=("xe", "scst", "auto"),
        help="teacher forcing, self-critical training of model.init_from, or both (training.stage of the recipe)",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder, if any")
    parser.add_argument("--overwrite", action="store_true", help="delete the run in the output folder first")
    add_launch_argument(parser, check_train)


def add_launch_argument(parser: argparse.ArgumentParser, check: Callable[[argparse.Namespace], None]):
    """`check` finds the mistakes that can be found soon, before several processes start and all tell them."""
    parser.add_argument("--num-processes", type=positive_int, metavar="N", help="share the work among N processes (1)")
    parser.set_defaults(can_be_launched=True, check=check)


def add_captioning_arguments(parser: argparse.ArgumentParser, needs_data: bool = True):
    parser.add_argument("--model", required=True, metavar="DIR", help=MODEL_HELP)
    parser.add_argument("--data", required=needs_data, metavar="SPEC", help=DATA_HELP)
    parser.add_argument("--split", default="test", help="train, validation or test (%(default)s)")
    parser.add_argument("--num-beams", type=positive_int, metavar="N", help="width of the beam search (the model's)")
    parser.add_argument("--batch-size", type=positive_int, default=64, metavar="N", help="images at once (%(default)s)")


def run_demo(options):
    from .demo import main as demo

    return demo(output=options.output, seed=options.seed, retrain=options.retrain)


def check_train(options):
    from .training.output_folder import check_output_folder

    check_output_folder(recipe_of(options), options.resume, options.overwrite)


def recipe_of(options):
    from .tasks import load_recipe

    stage = [] if options.stage is None else [f"training.stage={options.stage}"]
    return load_recipe(options.config, [*options.overrides, *stage])


def run_train(options):
    from .tasks import train

    recipe = recipe_of(options)
    result = train(recipe, resume=options.resume, overwrite=options.overwrite)
    if is_main_process():
        score = "" if result.best_score is None else f" ({recipe.evaluation.metric} {result.best_score:.4f})"
        print(f"The best model{score} is in {result.best_dir}.")
    leave_process_group()


def check_evaluate(options):
    from .loading import load_config

    if options.output:
        check_output_file(options.output)
    load_config(options.model)


def run_evaluate(options):
    from .data import extra_scores_of
    from .tasks import evaluate_captioner

    if options.output:
        check_output_file(options.output)
    model, processor, rows, accelerator = load_for_captioning(options)
    evaluation = evaluate_captioner(
        model,
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


def check_output_file(path: str):
    """Raise an OSError for a file that could not be written, before hours are spent on what shall be in it."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"--output {path} is a folder; name a file, such as captions.json.")
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"--output {path}: {folder} is a file, not a folder; name another place.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"--output {path}: {folder} cannot be written to; name another place.")


def run_caption(options):
    check_caption_options(options)
    if options.images:
        caption_images(options)
    else:
        caption_rows(options)


def check_caption_options(options):
    if bool(options.images) == (options.data is not None):
        raise ValueError("Give image files to caption, or a data set with --data, and not both.")
    of_images = ("text", "save_attention", "skip_errors")
    if not options.images and (given := [name for name in of_images if getattr(options, name)]):
        raise ValueError(f"--{given[0].replace('_', '-')} is for image files, not for --data.")


def caption_images(options):
    from .captioning_files import caption_files
    from .launching import make_accelerator
    from .loading import load_captioner

    model, processor = load_captioner(options.model)
    results = caption_files(
        model.to(make_accelerator().device),
        processor,
        options.images[: options.limit],
        attention_folder=options.save_attention,
        on_error="skip" if options.skip_errors else "raise",
        batch_size=options.batch_size,
        text=options.text,
        **generation_options(options),
    )
    for path, caption, error in results:
        print(f"{path}\t{caption or ''}", flush=True)
        if error is not None:
            print(f"hf-ngsan: skipped: {error}", file=sys.stderr)


def caption_rows(options):
    from .tasks import caption_batch

    model, processor, rows, _ = load_for_captioning(options, with_captions=False)
    num_rows = min(len(rows), options.limit or len(rows))
    for start in range(0, num_rows, options.batch_size):
        batch = [rows[index] for index in range(start, min(start + options.batch_size, num_rows))]
        captions = caption_batch(model, processor, batch, **generation_options(options))
        for row, caption in zip(batch, captions, strict=True):
            print(f"{row['image_id']}\t{caption}", flush=True)


def load_for_captioning(options, with_captions: bool = True):
    """Model on its device, processor, rows and accelerator of the commands that caption a split."""
    from .launching import make_accelerator
    from .loading import load_captioner
    from .tasks.caption_rows import load_rows, rows_for

    accelerator = make_accelerator()
    model, processor = load_captioner(options.model)
    rows = rows_for(model, processor, load_rows(options.data, options.split, with_captions), options.data)
    return model.to(accelerator.device), processor, rows, accelerator


def generation_options(options) -> dict:
    return {} if options.num_beams is None else {"num_beams": options.num_beams}


def is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def leave_process_group():
    from accelerate import PartialState

    PartialState().destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
