"""Shared code of the conversion scripts: reads untrusted checkpoints safely, renames weights, writes backbones."""

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

from hf_ngsan.io.folders import replace_folder_contents
from hf_ngsan.io.messages import sentence
from hf_ngsan.loading.models import save_model, without_weight_bars
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor

WRAPPERS = ("state_dict", "model")
PARALLEL = "module."
RESNEXT_WEIGHT = re.compile(
    r"stages\.(stem|stage(?P<stage>\d+))\.((?P<block>\d+)\.)?(?P<layer>\w+)\.(?P<kind>\w+)\.(?P<field>[\w.]+)"
)


class ConversionError(ValueError):
    """Raised for a checkpoint of another kind; the message names the file or the weight."""


def load_state_dict(path: str | Path) -> dict[str, torch.Tensor]:
    """Reads the weights of a `.pth` file without running code from it.

    Args:
        path: a file written by `torch.save`, with a state dict or a dict that contains one as `"model"` (detectron2) or
            `"state_dict"` (training scripts). Its values may be tensors or numpy arrays. The prefix `module.` of
            `DistributedDataParallel` is removed.

    Raises:
        OSError: the file cannot be read.
        ConversionError: it contains anything other than tensors and plain values.
    """
    path = Path(path)
    with open(path, "rb") as file:
        try:
            with torch.serialization.safe_globals([*numpy_classes(), argparse.Namespace]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about pickles that torch did not write
                loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises any kind of error for other formats
            raise ConversionError(
                f"{path} is damaged, or cannot be read as weights without running code from it "
                f"({type(error).__name__}); use a .pth file with a state dict."
            ) from error
    weights = loaded
    for wrapper in WRAPPERS:
        if isinstance(weights, dict) and isinstance(weights.get(wrapper), dict):
            weights = weights[wrapper]
    if not isinstance(weights, dict) or not weights:
        raise ConversionError(f"{path} does not contain a state dict, a table from names to tensors.")
    prefix = PARALLEL if all(str(name).startswith(PARALLEL) for name in weights) else ""
    return {str(name).removeprefix(prefix): as_tensor(value, name, path) for name, value in weights.items()}


def numpy_classes() -> list:
    """Returns the classes in a pickled numpy array, also with the names of numpy 1."""
    functions = [np.empty(0).__reduce__()[0], np.float32(0).__reduce__()[0]]
    numbers = {type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"}
    old_names = [(function, f"numpy.core.multiarray.{function.__name__}") for function in functions]
    return [np.ndarray, np.dtype, *numbers, *functions, *old_names]


def as_tensor(value, name: str, path: Path) -> torch.Tensor:
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, torch.Tensor):
        raise ConversionError(f"{name} in {path} is of type {type(value).__name__}, not a tensor.")
    return value


def convert(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    weights: dict[str, torch.Tensor],
    source_name: Callable[[str], str],
    heads: str = "$^",
) -> tuple[PreTrainedModel, list[str]]:
    """Builds a model and fills it with the weights of another code base.

    Args:
        model_class, config: class and configuration of the model.
        weights: the other code base's state dict.
        source_name: maps the name of a weight in this package to its name in `weights`.
        heads: regular expression for names of weights outside the backbone, which may be left out.

    Returns:
        The model in evaluation mode and float32, and the sorted names of the weights left out.

    Raises:
        ConversionError: a weight is missing, unknown, not finite or of a wrong shape; the message names it.
    """
    with torch.device("meta"):
        model = model_class(config)
    names = {ours: source_name(ours) for ours in model.state_dict()}
    unused = sorted(weights.keys() - set(names.values()))
    left_out = [name for name in unused if re.match(heads, name)]
    unknown = [name for name in unused if name not in left_out]
    # The first checkpoints of torchvision have no counts of batches.
    missing = sorted(name for name in names.values() if name not in weights and not name.endswith("batches_tracked"))
    if missing:
        number = f"{len(missing)} of {len(names)}"
        raise ConversionError(f"The checkpoint lacks weights of the architecture ({number}, such as {missing[0]}).")
    if unknown:
        raise ConversionError(
            f"The checkpoint has weights that the architecture lacks ({len(unknown)}, such as {unknown[0]})."
        )
    filled = {}
    for ours, empty in model.state_dict().items():
        theirs = names[ours]
        weight = weights[theirs] if theirs in weights else torch.zeros(empty.shape)
        if weight.shape != empty.shape:
            raise ConversionError(
                f"{theirs} has the shape {tuple(weight.shape)} instead of {tuple(empty.shape)}; "
                "is the checkpoint of this architecture?"
            )
        if not torch.isfinite(weight).all():
            raise ConversionError(f"{theirs} has values that are not finite; the checkpoint is damaged.")
        filled[ours] = weight.to(empty.dtype, copy=True).contiguous()
    model.load_state_dict(filled, assign=True)
    if any(buffer.is_meta for buffer in model.buffers()):  # buffers that are not saved
        model = model_class(config)
        model.load_state_dict(filled)
    return model.eval(), left_out


def resnext_weight(name: str) -> tuple[int, str | None, str | None, str, str]:
    """Splits the name of a weight of this package's ResNeXt.

    Returns:
        Number of the stage, 0 for the stem; number of the block in it, or `None`; number of the convolution in the
        block, or `None` for the shortcut; `"convolution"` or `"normalization"`; name of the tensor there.
    """
    match = RESNEXT_WEIGHT.fullmatch(name)
    convolution = {"embedder": "1", "reduce": "1", "transform": "2", "expand": "3"}.get(match["layer"])
    return int(match["stage"] or 0), match["block"], convolution, match["kind"], match["field"]


@dataclass
class Conversion:
    """A converted backbone.

    Args:
        model: the backbone.
        left_out: names of the weights in the checkpoint that are not part of the backbone.
        preprocessing: arguments of its image processor.
    """

    model: PreTrainedModel
    left_out: list[str]
    preprocessing: dict[str, Any]


def save(conversion: Conversion, output: str | Path):
    """Writes a backbone and its image processor atomically into a new folder.

    Raises:
        FileExistsError: the folder or a file with its name exists.
    """

    def write(folder: Path):
        conversion.model.save_pretrained(folder)
        CaptioningImageProcessor(**conversion.preprocessing).save_pretrained(folder)

    check_is_new(output)
    with without_weight_bars():
        replace_folder_contents(Path(output).absolute(), write)


def check_is_new(output: str | Path):
    if Path(output).exists():
        raise FileExistsError(f"{output} exists already; choose a new folder.")


def run_conversion(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, convert_files: Callable[[argparse.Namespace], str]
) -> int:
    """Runs the command line of a script, with `--output`; returns 0, or 2 after an error.

    `convert_files` reads, converts and writes, and returns the message for the user.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", required=True, metavar="DIR", help="new folder of the model")
    options = parser.parse_args(arguments)
    try:
        check_is_new(options.output)
        message = convert_files(options)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {sentence(error)}", file=sys.stderr)
        return 2
    print(message)
    return 0


def save_with_processor(model: PreTrainedModel, processor: Any, output: str | Path):
    """Writes a model and its processor atomically into a new folder."""
    with without_weight_bars():
        replace_folder_contents(Path(output).absolute(), lambda folder: save_model(model, processor, folder))


def main(
    description: str,
    architectures: Sequence[str],
    convert_weights: Callable[[str, dict[str, torch.Tensor]], Conversion],
    arguments: Sequence[str] | None = None,
    installed_checkpoint: Callable[[str], str] | None = None,
) -> int:
    """Runs the command line of a conversion script; returns 0, or 2 after an error.

    Args:
        description, architectures: for `--help`.
        convert_weights: maps an architecture and a state dict to the conversion to save.
        arguments: arguments of the command line; defaults to those of the process.
        installed_checkpoint: maps an architecture to the default checkpoint; without it, `--checkpoint` is required.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--architecture", required=True, choices=architectures, help="of the checkpoint")
    parser.add_argument(
        "--checkpoint", required=installed_checkpoint is None, metavar="FILE.pth", help="the weights to convert"
    )

    def convert_files(options: argparse.Namespace) -> str:
        if options.checkpoint is None and installed_checkpoint is not None:
            options.checkpoint = installed_checkpoint(options.architecture)
        conversion = convert_weights(options.architecture, load_state_dict(options.checkpoint))
        save(conversion, options.output)
        left_out = "".join(f"left out: {name}\n" for name in conversion.left_out)
        return (
            f"{left_out}The backbone of {options.architecture}, {len(conversion.model.state_dict())} weights, is in "
            f"{options.output}. {len(conversion.left_out)} weights of heads were left out."
        )

    return run_conversion(parser, arguments, convert_files)
