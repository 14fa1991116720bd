"""Arguments that several commands have, and their values."""

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bounds import (
    LARGEST_BATCH,
    LARGEST_GRID,
    LARGEST_SIDE,
    LONGEST_CAPTION,
    MOST_CAPTIONS,
    MOST_REGIONS,
    MOST_WORKERS,
    most_processes,
)
from ..files import check_place, is_empty

if TYPE_CHECKING:
    from transformers import GenerationConfig

DATASETS = "hf-ngsan datasets lists the kinds of datasets."
"""Ends the help of commands that take one."""
MOST_DIGITS = 18
LARGEST_PORT = 65_535
LARGEST_LENGTH_PENALTY = 5
VISION_FIELDS = ("out_features", "grid_size", "image_size", "num_regions", "score_threshold", "suppression_threshold")


def positive_int(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a whole number")
    if len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"a number of {len(text)} digits is too large")
    return int(text)


def at_most(largest: int, kind: Callable[[str], int] = positive_int) -> Callable[[str], int]:
    """Returns the type of an argument that is no larger than a number."""

    def bounded(text: str) -> int:
        number = kind(text)
        if number > largest:
            raise argparse.ArgumentTypeError(f"{number} is too large; it can be {largest} at most")
        return number

    return bounded


def user_path(text: str) -> str:
    """Returns a path, in which `~` at the beginning is a home folder, as it is for a shell."""
    return os.path.expanduser(text)


def between(least: float, most: float) -> Callable[[str], float]:
    """Returns the type of an argument that is a number within bounds."""

    def bounded(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a number from {least:g} to {most:g}")
        return value

    return bounded


fraction = between(0, 1)


def share(text: str) -> float:
    value = fraction(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


MODEL = "folder of a model, folder of a training run (its best model is taken), or name on the Hub"


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=user_path, metavar="DIR", help=MODEL)


def add_models_argument(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    several = f"{MODEL}; several caption together, as an ensemble"
    parser.add_argument(
        "--model",
        required=default is None,
        default=default and [default],
        nargs="+",
        type=user_path,
        metavar="DIR",
        help=several if default is None else f"{several} ({default}, which the package brings)",
    )


def add_image_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what [`~hf_ngsan.extraction.list_images`] takes but the split."""
    parser.add_argument(
        "--images",
        required=True,
        type=user_path,
        metavar="SOURCE",
        help="folder of images, COCO file (captions_*.json, instances_*.json) that lists them, or dataset with images",
    )
    parser.add_argument(
        "--image-folder",
        type=user_path,
        metavar="DIR",
        help="where the images of a COCO file are (its folder, or images/ there)",
    )


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how the images of a source are read and what is done with them in one piece."""
    parser.add_argument(
        "--num-workers",
        type=at_most(MOST_WORKERS, whole_number),
        metavar="N",
        help="processes that read images (one a processor, at most 4)",
    )
    parser.add_argument(
        "--images-per-shard",
        type=positive_int,
        metavar="N",
        help="what a kill can cost (chosen by the number of images)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")


def add_data_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument("--data", required=required, metavar="SPEC", help="dataset, such as scenes or images:DIR")
    parser.add_argument("--split", default="test", help="train, validation or test (%(default)s)")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="take the first N images only")


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-beams", type=at_most(MOST_CAPTIONS), metavar="N", help="width of the beam search (the model's)"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=at_most(LONGEST_CAPTION),
        metavar="N",
        help="longest caption in tokens, its end included (the model's)",
    )
    parser.add_argument(
        "--length-penalty",
        type=between(-LARGEST_LENGTH_PENALTY, LARGEST_LENGTH_PENALTY),
        metavar="P",
        help="rank beams by log-probability / length ** P: more than 0 prefers long captions (the model's)",
    )
    add_batch_size_argument(parser, 64)


def add_batch_size_argument(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--batch-size",
        type=at_most(LARGEST_BATCH),
        default=default,
        metavar="N",
        help="images a batch (%(default)s)",
    )


def add_skip_errors_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--skip-errors", action="store_true", help=f"continue after {what}")


def add_address_arguments(parser: argparse.ArgumentParser, port: int | None, port_help: str) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s, this machine alone)")
    parser.add_argument("--port", type=at_most(LARGEST_PORT, whole_number), default=port, metavar="N", help=port_help)


def generation_options(options: argparse.Namespace, own: "GenerationConfig") -> dict[str, Any]:
    """Returns the arguments of `generate()` that were given in place of the model's own.

    Raises:
        ValueError: a length penalty where there is one beam, which competes with no other.
    """
    given = {name: getattr(options, name) for name in ("num_beams", "max_new_tokens", "length_penalty")}
    given = {name: value for name, value in given.items() if value is not None}
    if "length_penalty" in given and given.get("num_beams", own.num_beams or 1) == 1:
        raise ValueError("--length-penalty ranks beams, and there is one; ask for more with --num-beams.")
    return given


def add_vision_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backbone",
        required=True,
        type=user_path,
        metavar="ID_OR_DIR",
        help="backbone, detection model, vision encoder, or captioner with one: a folder or a name on the Hub",
    )
    parser.add_argument(
        "--out-features",
        nargs="+",
        metavar="STAGE",
        help="stages of a backbone whose feature maps are put side by side, such as stage5 stage7 (the last)",
    )
    parser.add_argument(
        "--grid-size",
        nargs=2,
        type=at_most(LARGEST_GRID),
        metavar=("ROWS", "COLUMNS"),
        help="pool a backbone's feature map to this (left as it is)",
    )
    parser.add_argument(
        "--image-size",
        type=at_most(LARGEST_SIDE),
        metavar="PIXELS",
        help="height and width that images become, for a finer feature map than the backbone's own size gives",
    )
    parser.add_argument(
        "--num-regions", type=at_most(MOST_REGIONS), metavar="K", help="regions of an image at most (36)"
    )
    parser.add_argument(
        "--score-threshold", type=fraction, metavar="S", help="leave out regions with a lower score (0)"
    )
    parser.add_argument(
        "--suppression-threshold",
        type=fraction,
        metavar="IOU",
        help="leave out regions that overlap a better one of their class by more (1, none)",
    )


def vision_fields(options: argparse.Namespace) -> dict:
    """Returns the fields of a vision encoder and the size of its images, None where an option is left out."""
    return {name: getattr(options, name) for name in VISION_FIELDS}


def add_launch_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-processes", type=at_most(most_processes()), metavar="N", help="split the work among N processes (1)"
    )


def check_output_file(path: str, option: str = "--output") -> None:
    """Raises an OSError for a file that could not be written, before hours are spent on what it shall hold."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{option} {path} is a folder; name a file, such as captions.json.")
    check_place(Path(path))


def check_figure_file(path: str, option: str = "--figure") -> None:
    """Raises an OSError, a ValueError or a MissingPlotsError where a figure could not be drawn or written.

    Raises:
        OSError: the file could not be written.
        ValueError: the ending of its name is of no kind of picture that matplotlib draws.
        MissingPlotsError: matplotlib is not installed.
    """
    from ..visualization import check_matplotlib

    check_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in kinds:
        raise ValueError(f"{option} {path}: the name must end with one of {', '.join(f'.{kind}' for kind in kinds)}.")
    check_output_file(path, option)


def check_new_folder(path: str, option: str = "--output") -> None:
    """Raises an OSError for a folder that exists and holds something, or could not be made."""
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and is_empty(folder)):
        raise FileExistsError(f"{option} {path} exists already; choose another folder.")
    check_place(folder)
