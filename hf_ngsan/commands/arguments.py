"""Arguments of several commands, and their values."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ground.argument_types import at_most, fraction, positive_int, user_path, whole_number
from ..ground.bounds import MAX_BATCH_SIZE, MAX_GRID, MAX_REGIONS, MAX_SIDE, MAX_WORKERS, max_processes
from ..ground.files import check_place
from ..store.folders import is_empty
from ..tasks.generation_options import GENERATION_OPTIONS, add_generation_options, checked_options

if TYPE_CHECKING:
    from transformers import GenerationConfig

DATASETS = "hf-ngsan datasets lists the kinds of datasets."
"""Last line of the help of commands that take a dataset."""
MAX_PORT = 65_535
VISION_FIELDS = ("out_features", "grid_size", "image_size", "num_regions", "score_threshold", "suppression_threshold")


MODEL = "folder of a model, folder of a training run (its best model is taken), or name on the Hub"


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=user_path, metavar="DIR", help=MODEL)


def add_models_argument(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    several = f"{MODEL}; several models caption together, as an ensemble"
    parser.add_argument(
        "--model",
        required=default is None,
        default=default and [default],
        nargs="+",
        type=user_path,
        metavar="DIR",
        help=several if default is None else f"{several} ({default}, which comes with the package)",
    )


def add_image_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what [`~hf_ngsan.extraction.list_images`] takes but the split."""
    parser.add_argument(
        "--images",
        required=True,
        type=user_path,
        metavar="SOURCE",
        help="folder of images, COCO file with images (captions_*.json, instances_*.json), or dataset with images",
    )
    parser.add_argument(
        "--image-folder",
        type=user_path,
        metavar="DIR",
        help="folder of the images of a COCO file (its own folder, or images/ there)",
    )


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how the images of a source are read, and how many are written together."""
    parser.add_argument(
        "--num-workers",
        type=at_most(MAX_WORKERS, whole_number),
        metavar="N",
        help="processes that read images (one per processor, at most 4)",
    )
    parser.add_argument(
        "--images-per-shard",
        type=positive_int,
        metavar="N",
        help="images per shard; a run that is killed loses one shard at most (chosen by the number of images)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")


def add_data_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument("--data", required=required, metavar="SPEC", help="dataset, such as scenes or images:DIR")
    parser.add_argument("--split", default="test", help="train, validation or test (%(default)s)")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="use the first N images only")


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    add_generation_options(parser)
    add_batch_size_argument(parser, 64)


def add_batch_size_argument(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--batch-size",
        type=at_most(MAX_BATCH_SIZE),
        default=default,
        metavar="N",
        help="batch size (%(default)s)",
    )


def add_skip_errors_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--skip-errors", action="store_true", help=f"continue after {what}")


def add_address_arguments(parser: argparse.ArgumentParser, port: int | None, port_help: str) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s: this machine only)")
    parser.add_argument("--port", type=at_most(MAX_PORT, whole_number), default=port, metavar="N", help=port_help)


def generation_options(options: argparse.Namespace, own: "GenerationConfig") -> dict[str, Any]:
    """Returns the arguments of `generate()` that were given in place of the model's own, checked."""
    given = {name: getattr(options, name) for name in GENERATION_OPTIONS}
    return checked_options({name: value for name, value in given.items() if value is not None}, own)


def add_vision_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backbone",
        required=True,
        type=user_path,
        metavar="ID_OR_DIR",
        help="backbone, detection model, vision encoder, or captioner with a vision encoder: folder or name on the Hub",
    )
    parser.add_argument(
        "--out-features",
        nargs="+",
        metavar="STAGE",
        help="stages of a backbone; their feature maps are concatenated, such as stage5 stage7 (the last stage)",
    )
    parser.add_argument(
        "--grid-size",
        nargs=2,
        type=at_most(MAX_GRID),
        metavar=("ROWS", "COLUMNS"),
        help="pool the feature map of a backbone to this grid (not pooled)",
    )
    parser.add_argument(
        "--image-size",
        type=at_most(MAX_SIDE),
        metavar="PIXELS",
        help="resize images to this height and width, for a finer feature map than the backbone's own size gives",
    )
    parser.add_argument(
        "--num-regions", type=at_most(MAX_REGIONS), metavar="K", help="maximal number of regions of an image (36)"
    )
    parser.add_argument(
        "--score-threshold", type=fraction, metavar="S", help="leave out regions with a lower score (0)"
    )
    parser.add_argument(
        "--suppression-threshold",
        type=fraction,
        metavar="IOU",
        help="leave out a region if its IoU with a better region of its class is above this (1: keep all)",
    )


def vision_fields(options: argparse.Namespace) -> dict:
    """Returns the fields of a vision encoder and the size of its images, None where an option is left out."""
    return {name: getattr(options, name) for name in VISION_FIELDS}


def add_launch_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-processes", type=at_most(max_processes()), metavar="N", help="split the work among N processes (1)"
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
