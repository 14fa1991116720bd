"""Arguments that several commands share, their types, and checks of the places that they name."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..io import MAX_CAPTION_LENGTH
from ..io.files import check_place, write_output
from ..io.folders import is_empty
from ..serving.hosts import host_name

DATASETS = "hf-ngsan datasets lists the kinds of datasets."
"""Last line of the help of commands that take a dataset."""
ENGINES = ("torch", "onnx", "auto")
"""The engines of `loading.engines`, which imports torch."""
MAX_BATCH_SIZE = 2**14
MAX_CAPTIONS = 1_000
"""Captions of one image that are sampled or kept by a beam search."""
MAX_SIDE = 4_096
"""Pixels of a side of an image."""
MAX_GRID = 128
"""Rows or columns of a feature map."""
MAX_REGIONS = 10_000
MAX_WORKERS = 256
MAX_PORT = 65_535
MAX_PROCESSES = max(16, 4 * (os.cpu_count() or 1))
MAX_SHOWN_REASONS = 20
"""Records and images whose reasons for being skipped are printed."""
MODEL = "folder of a model, folder of a training run (for its best model), or name on the Hub"
"""Help of an argument that names a model."""


def between(least: float, most: float, kind: Callable[[str], float] = float) -> Callable[[str], Any]:
    """Returns the type of a number within two bounds, which are included."""

    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text[:50]!r} is not a {'whole ' if kind is int else ''}number"
            ) from None
        if value > most:
            raise argparse.ArgumentTypeError(f"{text[:50]} is too large; it can be {most:g} at most")
        if not value >= least:  # NaN, too
            raise argparse.ArgumentTypeError(f"{text[:50]} is too small; it must be at least {least:g}")
        return value

    return number


def at_most(largest: int, least: int = 1) -> Callable[[str], int]:
    """Returns the type of a whole number up to a bound."""
    return between(least, largest, int)


positive_int = at_most(2**63 - 1)
whole_number = at_most(2**63 - 1, 0)
fraction = between(0, 1)
user_path = os.path.expanduser


def key_and_value(text: str) -> tuple[str, Any]:
    """Returns the key and the value of KEY=VALUE, a number, true, false, null, text or a list; of words by commas."""
    import yaml

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not KEY=VALUE; images and texts stand before the option")
    if key == "required_words":  # where "no" and "2" are words
        return key, yaml.load(value, yaml.BaseLoader) if value.startswith("[") else value.split(",")  # nosec B506
    try:
        return key, float(value) if re.fullmatch(r"[-+]?\d+(\.\d+)?e[-+]?\d+", value) else yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"the value of {key} is not valid YAML") from None


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
        type=at_most(MAX_WORKERS, 0),
        metavar="N",
        help="number of processes that read images (one per processor, at most 4)",
    )
    parser.add_argument(
        "--images-per-shard",
        type=positive_int,
        metavar="N",
        help="images per shard; a run that is killed loses at most one shard (depends on the number of images)",
    )
    add_skip_errors_argument(parser, "images that cannot be read, which are named and counted")


def add_data_arguments(parser: argparse.ArgumentParser, required: bool = True, default_split: str = "test") -> None:
    parser.add_argument("--data", required=required, metavar="SPEC", help="dataset, such as scenes or images:DIR")
    parser.add_argument("--split", default=default_split, help="train, validation or test (%(default)s)")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="use the first N images only")


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-beams", type=at_most(MAX_CAPTIONS), metavar="N", help="number of beams (the model's)")
    parser.add_argument(
        "--max-new-tokens",
        type=at_most(MAX_CAPTION_LENGTH),
        metavar="N",
        help="maximal tokens of a text, with its end token (the model's)",
    )
    parser.add_argument(
        "--generate",
        nargs="+",
        action="extend",
        type=key_and_value,
        metavar="KEY=VALUE",
        help="other arguments of generate(), such as length_penalty=2 or no_repeat_ngram_size=3 (the model's)",
    )


def generation_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of `generate()` that a command line gives.

    Raises:
        ValueError: one is given twice.
    """
    given = {name: getattr(options, name) for name in ("num_beams", "max_new_tokens")}
    pairs = [*((key, value) for key, value in given.items() if value is not None), *(options.generate or ())]
    if len(dict(pairs)) < len(pairs):
        twice = next(key for key, _ in pairs if [other for other, _ in pairs].count(key) > 1)
        raise ValueError(f"{twice} is given twice; give it once.")
    return dict(pairs)


def add_batch_size_argument(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--batch-size", type=at_most(MAX_BATCH_SIZE), default=default, metavar="N", help="batch size (%(default)s)"
    )


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="torch",
        help="runtime of the vision encoder's convolutional backbone on a CPU (torch): onnx exports it on "
        "first use; auto is onnx where it is installed and can run the model",
    )


def add_skip_errors_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--skip-errors", action="store_true", help=f"continue after {what}; exit code 2 if that leaves nothing"
    )


def add_address_arguments(parser: argparse.ArgumentParser, port: int | None, port_help: str) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s: this machine only)")
    parser.add_argument("--port", type=at_most(MAX_PORT, 0), default=port, metavar="N", help=port_help)
    parser.add_argument(
        "--allowed-host",
        action="append",
        type=host_name,
        default=[],
        metavar="NAME",
        help="also answer requests for this name or address, such as that of a proxy, beside localhost and --host; may "
        "be repeated",
    )


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
        type=lambda text: int(text) if text.lstrip("-").isdecimal() else text,
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


def vision_fields(options: argparse.Namespace) -> dict:
    """Returns the values of [`add_vision_arguments`] but the backbone, by name; None where an option is left out."""
    names = ("out_features", "grid_size", "image_size", "num_regions", "score_threshold", "suppression_threshold")
    return {name: getattr(options, name) for name in names}


def add_launch_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-processes", type=at_most(MAX_PROCESSES), metavar="N", help="split the work among N processes (1)"
    )


def add_json_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print a JSON object a line: the {what} with its score, the mean log-probability of its tokens, and the "
        "log-probability of each word",
    )
    parser.add_argument("--output", type=user_path, metavar="FILE", help="write the lines to this file (print them)")


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
    check_replaces_none([path], f"{option} {path}", inputs)
    check_place(Path(path))


def check_output_files(outputs: Mapping[str, str | None], inputs: Sequence[str | None]) -> None:
    """Checks the files that several options name, by [`check_output_file`], and that no two are the same file."""
    given = {option: path for option, path in outputs.items() if path}
    for option, path in given.items():
        check_output_file(path, option, inputs)
    if len(set(map(os.path.realpath, given.values()))) < len(given):
        raise ValueError(f"{' and '.join(given)} name the same file; name two.")


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


def check_figure_folder(path: str, option: str, inputs: Iterable[str | None]) -> None:
    """Checks that figures NAME.png can be written into a folder, and replace no image that the command reads.

    Raises:
        OSError: the folder is a file, or cannot be made.
        ValueError: the folder has PNG files that are inputs.
        MissingPlotsError: matplotlib is not installed.
    """
    from ..visualization import check_matplotlib

    check_matplotlib()
    if os.path.isfile(path):
        raise NotADirectoryError(f"{option} {path} is a file; name a folder for the figures.")
    check_place(Path(path, "figure.png"))
    check_replaces_none(map(str, Path(path).glob("*.png")), f"{option} {path}", inputs)


def check_replaces_none(paths: Iterable[str], option: str, inputs: Iterable[str | None]) -> None:
    """Raises a ValueError if one of the files is an input of the command, or lies in a folder that is one."""
    from ..data.readers import find_reader, parse_spec

    files = {Path(os.path.realpath(path)) for path in paths if os.path.isfile(path)}
    for given in inputs if files else ():
        places: list[Any] = [given]
        if given is not None and ":" in given and "://" not in given and not os.path.exists(given):
            source, values = parse_spec(given, find_reader(given))
            places = [source, *map(str, values.values())]
        for place in filter(None, places):
            if any(file.is_relative_to(os.path.realpath(place)) for file in files):
                raise ValueError(f"{option} would replace what this command reads ({place}); choose another place.")


def check_new_folder(path: str, option: str = "--output") -> None:
    """Raises an OSError if a folder exists and is not empty, or cannot be made."""
    if not is_empty(Path(path)):
        raise FileExistsError(f"{option} {path} exists already; choose another folder.")
    check_place(Path(path))


def check_data(spec: str | None) -> None:
    """Raises a DataError for a spec of no kind of dataset, or with an unknown key, before a model is loaded."""
    from ..data.readers import find_reader, parse_spec

    if spec is not None:
        parse_spec(spec, find_reader(spec))


def check_images(places: Iterable[str | None]) -> None:
    """Raises a FileNotFoundError for an image file that does not exist; URLs and `None` pass."""
    for place in places:
        if place is not None and ":" not in place and not os.path.exists(place):
            raise FileNotFoundError(f"There is no image file {place}.")


def print_skipped(reasons: Sequence[str], folder: str | None = None) -> None:
    """Prints the first reasons why something was skipped; `folder` has the file with all of them."""
    for reason in reasons[:MAX_SHOWN_REASONS]:
        print(f"skipped: {reason}")
    if len(reasons) > MAX_SHOWN_REASONS:
        where = f"; all are in {folder}/skipped.json" if folder else ""
        print(f"skipped: {len(reasons) - MAX_SHOWN_REASONS} more{where}.")


def print_header(*columns: str) -> None:
    """Prints the names of columns on a terminal; programs that read the lines get none."""
    if sys.stdout.isatty():
        print("\t".join(columns), flush=True)


def json_of(record: dict) -> str:
    """Returns a line of JSON; lone surrogates, as in file names that are not UTF-8, are escaped."""
    text = json.dumps(record, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda surrogate: f"\\u{ord(surrogate[0]):04x}", text)


@contextmanager
def written_lines(path: str | None) -> Iterator[Callable[[str], object]]:
    """Yields a function that prints a line, or keeps it for a file, which is written at the end, whole."""
    if path is None:
        yield lambda line: print(line, flush=True)
        return
    lines: list[str] = []
    yield lines.append
    write_output(path, "".join(f"{line}\n" for line in lines))
