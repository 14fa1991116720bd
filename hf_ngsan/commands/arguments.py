"""Arguments that several commands share, and checks of their values."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.argument_types import at_most, fraction, positive_int, user_path, whole_number
from ..io.bounds import MAX_BATCH_SIZE, MAX_GRID, MAX_REGIONS, MAX_SIDE, MAX_WORKERS, max_processes
from ..io.files import check_place
from ..io.folders import is_empty
from ..io.listening import host_name
from ..tasks.generation_options import GENERATION_OPTIONS, add_generation_options, checked_options

if TYPE_CHECKING:
    from transformers import GenerationConfig


DATASETS = "hf-ngsan datasets lists the kinds of datasets."
"""Last line of the help of commands that take a dataset."""
ENGINES = ("torch", "onnx", "openvino", "auto")
"""The engines of `loading.engines`, which imports torch."""
MAX_KEPT = 2**26
"""Bytes of lines that are kept in memory until their file is written; further ones are in a temporary file."""
MAX_PORT = 65_535
LISTED_AT_MOST = 20
"""Records and images whose reasons for being skipped are printed."""
MODEL = "folder of a model, folder of a training run (for its best model), or name on the Hub"
"""Help of an argument that names a model."""


def add_model_argument(
    parser: argparse.ArgumentParser, default: str | None = None, *, or_ensemble: bool = False
) -> None:
    """Adds `--model`; with `or_ensemble` it takes several models, and its value is a list."""
    ensemble = "; several models form an ensemble" if or_ensemble else ""
    comes_with = "" if default is None else f" ({default}, which comes with the package)"
    parser.add_argument(
        "--model",
        required=default is None,
        default=[default] if default is not None and or_ensemble else default,
        nargs="+" if or_ensemble else None,
        type=user_path,
        metavar="DIR",
        help=f"{MODEL}{ensemble}{comes_with}",
    )


def add_image_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of [`~hf_ngsan.extraction.list_images`], without the split."""
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
    """Adds the options for reading images and for writing them in shards."""
    parser.add_argument(
        "--num-workers",
        type=at_most(MAX_WORKERS, whole_number),
        metavar="N",
        help="number of processes that read images (one per processor, at most 4)",
    )
    parser.add_argument(
        "--images-per-shard",
        type=positive_int,
        metavar="N",
        help="images per shard; a run that is killed loses at most one shard (depends on the number of images)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")


def add_data_arguments(parser: argparse.ArgumentParser, required: bool = True, default_split: str = "test") -> None:
    parser.add_argument("--data", required=required, metavar="SPEC", help="dataset, such as scenes or images:DIR")
    parser.add_argument("--split", default=default_split, help="train, validation or test (%(default)s)")
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


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="torch",
        help="runtime of the vision encoder's convolutional backbone on a CPU (torch): onnx and openvino "
        "export it on first use; auto is onnx where it is installed and can run the model",
    )


def add_skip_errors_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--skip-errors", action="store_true", help=f"continue after {what}; exit code 2 if that leaves nothing"
    )


def add_address_arguments(parser: argparse.ArgumentParser, port: int | None, port_help: str) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s: this machine only)")
    parser.add_argument("--port", type=at_most(MAX_PORT, whole_number), default=port, metavar="N", help=port_help)
    parser.add_argument(
        "--allowed-host",
        action="append",
        type=allowed_host,
        default=[],
        metavar="NAME",
        help="also answer requests for this name or address, such as that of a proxy, beside localhost and --host; may "
        "be repeated",
    )


def allowed_host(text: str) -> str:
    try:
        return host_name(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no name of a machine, without scheme and port") from None


def generation_options(options: argparse.Namespace, own: "GenerationConfig") -> dict[str, Any]:
    """Returns the arguments of `generate()` that replace settings of the model, checked."""
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
        type=stage,
        metavar="STAGE",
        help="stages of a backbone, whose feature maps are concatenated, by name or position: stage5 stage7, or -2 for "
        "the layer before the last (the last stage)",
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
        help="leave out a region if its IoU with a region of its class and a higher score is above this (1: keep all)",
    )


def stage(text: str) -> str | int:
    """Returns the name of a stage, or its position."""
    return int(text) if text.lstrip("-").isdecimal() else text


def vision_fields(options: argparse.Namespace) -> dict:
    """Returns the values of [`add_vision_arguments`] but the backbone, by name; None where an option is left out."""
    names = ("out_features", "grid_size", "image_size", "num_regions", "score_threshold", "suppression_threshold")
    return {name: getattr(options, name) for name in names}


def add_launch_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-processes", type=at_most(max_processes()), metavar="N", help="split the work among N processes (1)"
    )


def check_output_file(path: str, option: str = "--output", inputs: Iterable[str | None] = ()) -> None:
    """Checks that a file can be written, before hours of work on its contents, and is none that the command reads.

    Args:
        path: file to write.
        option: option that names it.
        inputs: files, folders and datasets that the command reads; `None` is none.

    Raises:
        OSError: the file cannot be written.
        ValueError: it is an input, by whatever spelling or link, or a file in a folder that is one.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(f"{option} {path} is a folder; name a file, such as captions.json.")
    for place in places_of(inputs) if os.path.isfile(path) else ():
        if is_within(path, place):
            raise ValueError(f"{option} {path} would replace what this command reads ({place}); choose another file.")
    check_place(Path(path))


def check_output_files(outputs: Mapping[str, str | None], inputs: Sequence[str | None]) -> None:
    """Checks the files that several options name, by [`check_output_file`], and that no two are the same file."""
    given = {option: path for option, path in outputs.items() if path}
    for option, path in given.items():
        check_output_file(path, option, inputs)
    if len(set(map(os.path.realpath, given.values()))) < len(given):
        raise ValueError(f"{' and '.join(given)} name the same file; name two.")


def check_figure_folder(path: str, option: str, inputs: Iterable[str | None]) -> None:
    """Checks that figures NAME.png can be written into a folder, and replace no image that the command reads.

    Raises:
        OSError: the folder is a file, or cannot be made.
        ValueError: the folder has PNG files that are inputs.
        MissingPlotsError: matplotlib is not installed.
    """
    from ..visualization import check_matplotlib

    check_matplotlib()
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{option} {path} is a file; name a folder for the figures.")
    check_place(folder / "figure.png")
    if not folder.is_dir():
        return
    figures = [str(file) for file in folder.glob("*.png")]
    for place in places_of(inputs) if figures else ():
        if any(is_within(figure, place) for figure in figures):
            raise ValueError(f"{option} {path} holds images that this command reads ({place}); name another folder.")


def places_of(inputs: Iterable[str | None]) -> Iterator[str]:
    """Yields the files and folders that exist among inputs: paths, and the sources and values of specs of datasets."""
    from ..data.readers import find_reader, parse_spec

    for given in inputs:
        if given is None or "://" in given:
            continue
        if os.path.exists(given):
            yield given
        elif ":" in given:
            source, values = parse_spec(given, find_reader(given))
            yield from (place for place in (source, *map(str, values.values())) if os.path.exists(place))


def check_data(spec: str | None) -> None:
    """Raises a DataError for a spec of no kind of dataset, or with an unknown key, before a model is loaded."""
    from ..data.readers import find_reader, parse_spec

    if spec is not None:
        parse_spec(spec, find_reader(spec))


def is_within(path: str, place: str) -> bool:
    """Returns whether a file is another one, or in a folder, after all links."""
    if os.path.isdir(place):
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place))
    return os.path.samefile(path, place)


def check_images(places: Iterable[str | None]) -> None:
    """Raises a FileNotFoundError for an image file that does not exist; URLs and `None` pass."""
    for place in places:
        if place is not None and ":" not in place and not os.path.exists(place):
            raise FileNotFoundError(f"There is no image file {place}.")


def check_figure_file(path: str, inputs: Iterable[str | None] = ()) -> None:
    """Checks that the file of --figure can be drawn and written; see [`check_output_file`].

    Raises:
        OSError: the file cannot be written.
        ValueError: matplotlib has no format with the suffix of the name, or the file is an input.
        MissingPlotsError: matplotlib is not installed.
    """
    from ..visualization import check_matplotlib

    check_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in kinds:
        raise ValueError(f"--figure {path}: the name must end with one of {', '.join(f'.{kind}' for kind in kinds)}.")
    check_output_file(path, "--figure", inputs)


def check_new_folder(path: str, option: str = "--output") -> None:
    """Raises an OSError if a folder exists and is not empty, or cannot be made."""
    folder = Path(path)
    if not is_empty(folder):
        raise FileExistsError(f"{option} {path} exists already; choose another folder.")
    check_place(folder)


def check_text(text: str, name: str) -> None:
    """Raises a ValueError for an argument that is not UTF-8: Python decodes its bytes to lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} {text!r} is not UTF-8 text; write it in characters.") from None


def print_skipped(reasons: Sequence[str], folder: str | None = None) -> None:
    """Prints the first reasons why something was skipped; `folder` has the file with all of them."""
    for reason in reasons[:LISTED_AT_MOST]:
        print(f"skipped: {reason}")
    if len(reasons) > LISTED_AT_MOST:
        where = f"; all are in {folder}/skipped.json" if folder else ""
        print(f"skipped: {len(reasons) - LISTED_AT_MOST} more{where}.")


def add_json_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print a JSON object a line: the {what} with its score, the mean log-probability of its tokens, and the "
        "log-probability of each word",
    )
    parser.add_argument("--output", type=user_path, metavar="FILE", help="write the lines to this file (print them)")


def json_of(record: dict) -> str:
    """Returns a line of JSON; lone surrogates, as in file names that are not UTF-8, are escaped."""
    text = json.dumps(record, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def print_header(*columns: str) -> None:
    """Prints the names of columns on a terminal; programs that read the lines get none."""
    if sys.stdout.isatty():
        print("\t".join(columns), flush=True)


@contextmanager
def written_lines(path: str | None) -> Iterator[Callable[[str], object]]:
    """Yields a function that prints a line, or keeps it for a file, which is written at the end, whole."""
    from ..io.files import write_file_atomically

    if path is None:
        yield lambda line: print(line, flush=True)
        return
    with tempfile.SpooledTemporaryFile(MAX_KEPT) as kept:
        yield lambda line: kept.write(f"{line}\n".encode())
        kept.seek(0)
        write_file_atomically(path, partial(shutil.copyfileobj, kept))
