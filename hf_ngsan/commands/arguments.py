"""Arguments that several commands share, their types, and checks of their paths."""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..io.files import check_place, write_output
from ..serving.hosts import host_name

ENGINE = "runtime of the vision backbone on a CPU (default: torch; for caption, index and extract, the model's ONNX "
ENGINE += "graphs if it has any); onnx needs the extra export; auto uses onnx where possible"
ENGINES = ("torch", "onnx", "auto")
"""The engines of `loading.engines`, repeated here because that module imports torch."""
MAX_IMAGES_OF_GRAPHS = 1000  # for more images, the time to import torch does not matter, and it may use a GPU
MAX_SHOWN_REASONS = 20
"""Maximal number of skipped records or images for which the reason is printed."""
MODEL = "folder of a model, folder of a training run (for its best model), or name on the Hub"
"""Help text of an argument that names a model."""


def between(least: float, most: float, kind: Callable[[str], float] = float) -> Callable[[str], Any]:
    """Returns an argument type: a number from `least` to `most`, both included."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:50]} is not between {least:g} and {most:g}")
        return value

    return number


def at_most(largest: int, least: int = 1) -> Callable[[str], int]:
    return between(least, largest, int)


positive_int = at_most(2**63 - 1)
whole_number = at_most(2**63 - 1, 0)
fraction = between(0, 1)
user_path = os.path.expanduser


def key_and_value(text: str) -> tuple[str, Any]:
    """Parses KEY=VALUE; the value is YAML, such as a number, true, null, a text or a list; commas separate words."""
    import yaml

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not KEY=VALUE; put images and texts before the option")
    if key == "required_words":  # "no" and "2" are words here
        return key, yaml.load(value, yaml.BaseLoader) if value.startswith("[") else value.split(",")  # nosec B506
    try:
        return key, float(value) if re.fullmatch(r"[-+]?\d+(\.\d+)?e[-+]?\d+", value) else yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"the value of {key} is not valid YAML") from None


def stage(text: str) -> int | str:
    """Parses the position or the name of a backbone stage."""
    return int(text) if text.lstrip("-").isdecimal() else text


SHARED: dict[str, dict[str, Any]] = {
    "--model": {"required": True, "type": user_path, "metavar": "DIR", "help": MODEL},
    "--data": {"required": True, "metavar": "SPEC", "help": "dataset, such as scenes or images:DIR"},
    "--split": {"default": "test", "help": "train, validation or test (%(default)s)"},
    "--limit": {"type": positive_int, "metavar": "N", "help": "use the first N images only"},
    "--num-beams": {"type": positive_int, "metavar": "N", "help": "number of beams (default: the model's)"},
    "--max-new-tokens": {"type": positive_int, "metavar": "N", "help": "maximal number of generated tokens"},
    "--generate": {
        "nargs": "+",
        "action": "extend",
        "type": key_and_value,
        "metavar": "KEY=VALUE",
        "help": "other arguments of generate(), such as length_penalty=2 (default: the model's)",
    },
    "--batch-size": {"type": positive_int, "metavar": "N", "help": "batch size (%(default)s)"},
    "--engine": {"choices": ENGINES, "help": ENGINE},
    "--json": {"action": "store_true", "help": "print JSON lines, with log-probabilities of text and words"},
    "--output": {"type": user_path, "metavar": "FILE", "help": "write to this file (default: print)"},
    "--skip-errors": {"action": "store_true", "help": "skip inputs that cannot be used; they are named and counted"},
    "--images": {"required": True, "type": user_path, "metavar": "SOURCE", "help": "folder, COCO file or dataset"},
    "--image-folder": {"type": user_path, "metavar": "DIR", "help": "images of a COCO file (its folder or images/)"},
    "--num-workers": {"type": at_most(256, 0), "metavar": "N", "help": "processes that read images"},
    "--images-per-shard": {"type": positive_int, "metavar": "N", "help": "images per file (most that a kill loses)"},
    "--dtype": {"choices": ("float16", "float32"), "default": "float16", "help": "of stored features (%(default)s)"},
    "--num-processes": {"type": positive_int, "metavar": "N", "help": "split the work among N processes (1)"},
    "--backbone": {
        "required": True,
        "type": user_path,
        "metavar": "ID_OR_DIR",
        "help": "backbone, detection model, vision encoder, or captioner that has one: folder or name on the Hub",
    },
    "--out-features": {"nargs": "+", "type": stage, "metavar": "STAGE", "help": "stages, such as stage5 or -2 (last)"},
    "--grid-size": {"nargs": 2, "type": positive_int, "metavar": ("ROWS", "COLUMNS"), "help": "pool to this grid"},
    "--image-size": {"type": positive_int, "metavar": "PIXELS", "help": "resize images to this square"},
    "--num-regions": {"type": positive_int, "metavar": "K", "help": "maximal regions per image (36)"},
    "--score-threshold": {"type": fraction, "metavar": "S", "help": "leave out regions with a lower score (0)"},
    "--suppression-threshold": {"type": fraction, "metavar": "IOU", "help": "leave out regions with a larger IoU (1)"},
    "--region-features": {"choices": ("queries", "pooled"), "help": "the detector's queries, or means of its map"},
    "--boxes": {"type": user_path, "metavar": "FILE", "help": "boxes of the images: COCO file, table or YOLO folder"},
    "--with-whole-image": {"action": "store_true", "default": None, "help": "with boxes, a region of the whole image"},
    "--num-frames": {"type": positive_int, "metavar": "T", "help": "frames per video (8)"},
    "--seconds-per-frame": {"type": between(0.01, 86400), "metavar": "S", "help": "instead, a frame every S seconds"},
    "--host": {"default": "127.0.0.1", "help": "address to listen at (%(default)s: this machine only)"},
    "--port": {"type": at_most(65_535, 0), "metavar": "N"},
    "--allowed-host": {
        "action": "append",
        "type": host_name,
        "default": [],
        "metavar": "NAME",
        "help": "also answer requests for this host name or address, such as that of a proxy; may be repeated",
    },
}
"""Settings of the shared options."""
DATA = ("--data", "--split", "--limit")
GENERATION = ("--num-beams", "--max-new-tokens", "--generate")
READING = ("--num-workers", "--images-per-shard", "--skip-errors")
VISION: tuple[str, ...] = ("out_features", "grid_size", "image_size", "num_regions", "score_threshold")
VISION += ("suppression_threshold", "region_features", "with_whole_image", "num_frames", "seconds_per_frame")
"""Arguments of a vision encoder in addition to its backbone."""
VISION_OPTIONS = ("--backbone", *(f"--{name.replace('_', '-')}" for name in VISION))


def add_shared(parser: Any, *names: str, **changes: Any) -> None:
    """Adds options of [`SHARED`]; `changes` override the settings of each of them."""
    for name in names:
        parser.add_argument(name, **SHARED[name] | changes)


def pick(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Returns the values of the named options, as keyword arguments of a function."""
    return {name: getattr(options, name) for name in names}


def generation_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of `generate()` from a command line; those of --generate take precedence."""
    chosen = pick(options, "num_beams", "max_new_tokens")
    return {name: value for name, value in chosen.items() if value is not None} | dict(options.generate or ())


def may_use_graphs(options: argparse.Namespace, number: int) -> bool:
    """Returns whether the ONNX graphs in the model's folder may encode this number of images, instead of PyTorch."""
    is_alone = "WORLD_SIZE" not in os.environ
    return options.engine != "torch" and not options.modules and is_alone and 0 < number <= MAX_IMAGES_OF_GRAPHS


def load_on_device(name: str, task: str | None = None, engine: str | None = None) -> tuple[Any, Any]:
    """Returns a model, on the device of this process, and its processor; see `load_model` and `use_engine`."""
    from ..io.processes import make_accelerator
    from ..loading.engines import use_engine
    from ..loading.models import load_model

    model, processor = load_model(name, task)
    use_engine(model.to(make_accelerator().device), processor, engine)
    return model, processor


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str | None] = ()) -> None:
    """Raises an error early for output files that cannot be written or would replace an input."""
    places = {option: path for option, path in outputs.items() if path}
    for option, path in places.items():
        if os.path.isdir(path):
            raise IsADirectoryError(f"{option} {path} is a folder; name a file, such as captions.json.")
        check_place(Path(path))
        check_replaces_none([path], f"{option} {path}", inputs)
    if len(set(map(os.path.realpath, places.values()))) < len(places):
        raise ValueError(f"{' and '.join(places)} name the same file; give different files.")


def check_figures(option: str, folder: str | None, inputs: Iterable[str | None]) -> None:
    """Checks that figures NAME.png can be drawn and written into a folder, and do not replace an input image."""
    if folder is None:
        return
    from ..visualization import check_matplotlib

    check_matplotlib()
    if os.path.isfile(folder):
        raise NotADirectoryError(f"{option} {folder} is a file; give a folder for the figures.")
    check_place(Path(folder, "figure.png"))
    check_replaces_none(map(str, Path(folder).glob("*.png")), f"{option} {folder}", inputs)


def check_replaces_none(paths: Iterable[str], option: str, inputs: Iterable[str | None]) -> None:
    """Raises a ValueError if one of the files is an input of the command, or is in an input folder."""
    from ..data.readers import find_reader, parse_spec

    files = {Path(os.path.realpath(path)) for path in paths if os.path.isfile(path)}
    for name in inputs if files else ():
        places: list[Any] = [name]
        if name is not None and ":" in name and "://" not in name and not os.path.exists(name):
            source, values = parse_spec(name, find_reader(name))
            places = [source, *map(str, values.values())]
        for place in filter(None, places):
            if any(file.is_relative_to(os.path.realpath(place)) for file in files):
                raise ValueError(f"{option} would replace an input of this command ({place}); choose another path.")


def check_files(*places: str | None) -> None:
    """Raises a FileNotFoundError for a file that does not exist; URLs and `None` pass."""
    for place in places:
        if place is not None and ":" not in place and not os.path.exists(place):
            raise FileNotFoundError(f"There is no file {place}.")


def print_skipped(reasons: Sequence[str], folder: str | None = None) -> None:
    """Prints the first reasons why inputs were skipped; `folder` has the file with all reasons."""
    for reason in reasons[:MAX_SHOWN_REASONS]:
        print(f"skipped: {reason}")
    if len(reasons) > MAX_SHOWN_REASONS:
        where = f"; all are in {folder}/skipped.json" if folder else ""
        print(f"skipped: {len(reasons) - MAX_SHOWN_REASONS} more{where}.")


def json_of(record: dict) -> str:
    """Returns a line of JSON; lone surrogates, as in file names that are not UTF-8, are escaped."""
    text = json.dumps(record, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda surrogate: f"\\u{ord(surrogate[0]):04x}", text)


@contextmanager
def written_lines(path: str | None) -> Iterator[Callable[[str], object]]:
    """Yields a function that prints a line, or keeps it for a file that is written at the end, as a whole."""
    if path is None:
        yield lambda line: print(line, flush=True)
        return
    lines: list[str] = []
    yield lines.append
    write_output(path, "".join(f"{line}\n" for line in lines))
