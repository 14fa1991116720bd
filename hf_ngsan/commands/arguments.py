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

ENGINE = "runtime of the vision backbone on a CPU: onnx needs hf-ngsan[export], auto uses onnx where possible "
ENGINE += "(default: torch; caption, index and extract use onnx if the folder of the model has ONNX graphs)"
ENGINES = ("torch", "onnx", "auto")
"""The engines of `loading.engines`, repeated here because that module imports torch."""
MAX_IMAGES_OF_GRAPHS = 1000  # for more images, the time to import torch does not matter, and it may use a GPU
MAX_SHOWN_REASONS = 20
"""Maximum number of skipped records or images for which the reason is printed."""
MODEL = "folder of a model or of a training run (its best model is used), packaged model, or name on the Hub"
"""Help text of an argument that names a model."""
BACKBONE = "folder or Hub name of a backbone, detection model, vision encoder, or captioner with a vision encoder"
REGION_FEATURES = "queries of the detector, or means of its feature map within the boxes (default: queries)"
PER_SHARD = "images per output file; a killed run repeats at most one file (default: depends on image count)"
GENERATE = "other arguments of generate(), such as length_penalty=2 (default: the model's)"
ALLOWED_HOST = "also accept requests for this host name or address, such as that of a proxy; can be repeated"


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
    if key in ("required_words", "forbidden_words"):  # "no" and "2" are words here
        return key, yaml.load(value, yaml.BaseLoader) if value.startswith("[") else value.split(",")  # nosec B506
    try:
        return key, float(value) if re.fullmatch(r"[-+]?\d+(\.\d+)?e[-+]?\d+", value) else yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"the value of {key} is not valid YAML") from None


def stage(text: str) -> int | str:
    """Parses the position or the name of a backbone stage."""
    return int(text) if text.lstrip("-").isdecimal() else text


def option(help: str, metavar: Any = None, type: Any = None, **settings: Any) -> dict[str, Any]:
    """Returns settings of `add_argument`; those that are None are left out."""
    settings |= {"help": help, "metavar": metavar, "type": type}
    return {name: value for name, value in settings.items() if value is not None}


SHARED: dict[str, dict[str, Any]] = {
    "--model": option(MODEL, "DIR", user_path, required=True),
    "--data": option("dataset, such as scenes or images:DIR", "SPEC", required=True),
    "--split": option("split of the dataset: train, validation or test", default="test"),
    "--limit": option("use only the first N images (default: all)", "N", positive_int),
    "--num-beams": option("number of beams (default: the model's)", "N", positive_int),
    "--max-new-tokens": option("maximum number of generated tokens (default: the model's)", "N", positive_int),
    "--generate": option(GENERATE, "KEY=VALUE", key_and_value, nargs="+", action="extend"),
    "--batch-size": option("batch size", "N", positive_int),
    "--engine": option(ENGINE, choices=ENGINES),
    "--json": option("print one JSON object per line, with log-probabilities of text and words", action="store_true"),
    "--output": option("write the output to this file (default: print it)", "FILE", user_path),
    "--skip-errors": option("skip and list inputs that cannot be read (default: an error)", action="store_true"),
    "--images": option("folder, COCO file, or dataset such as images:DIR", "SOURCE", user_path, required=True),
    "--image-folder": option("folder of the images in a COCO file (default: its folder or images/)", "DIR", user_path),
    "--num-workers": option("processes that read images (default: one per CPU core, at most 4)", "N", at_most(256, 0)),
    "--images-per-shard": option(PER_SHARD, "N", positive_int),
    "--dtype": option("data type of the stored features", choices=("float16", "float32"), default="float16"),
    "--num-processes": option("split the work among N processes (default: 1)", "N", positive_int),
    "--backbone": option(BACKBONE, "ID_OR_DIR", user_path, required=True),
    "--out-features": option("stages, such as stage5 or -2 (default: the last)", "STAGE", stage, nargs="+"),
    "--grid-size": option("pool the features to a grid of this size", ("ROWS", "COLUMNS"), positive_int, nargs=2),
    "--image-size": option("resize images to a square of this side (default: the model's)", "PIXELS", positive_int),
    "--num-regions": option("maximum number of regions per image (default: 36)", "K", positive_int),
    "--score-threshold": option("drop regions with a lower score, from 0 to 1 (default: 0)", "S", fraction),
    "--suppression-threshold": option("IoU threshold of non-maximum suppression (default: 1, off)", "IOU", fraction),
    "--region-features": option(REGION_FEATURES, choices=("queries", "pooled")),
    "--boxes": option("boxes of the images: COCO annotations or results, table, or YOLO folder", "FILE", user_path),
    "--with-whole-image": {"action": "store_true", "default": None, "help": "also add the whole image as a region"},
    "--num-frames": option("number of frames per video (default: 8)", "T", positive_int),
    "--seconds-per-frame": option("sample a frame every S seconds instead", "S", between(0.01, 86400)),
    "--host": option("address to listen on (default: 127.0.0.1, this machine only)", default="127.0.0.1"),
    "--port": option("port to listen on", "N", at_most(65_535, 0)),
    "--allowed-host": option(ALLOWED_HOST, "NAME", host_name, action="append", default=[]),
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
