"""What the conversion scripts share: reading strangers' checkpoints safely, renaming weights, writing a backbone."""

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
from hf_ngsan.loading.models import save_model, without_progress_bars
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor

WRAPPERS = ("state_dict", "model")
PARALLEL = "module."
RESNEXT_WEIGHT = re.compile(
    r"stages\.(stem|stage(?P<stage>\d+))\.((?P<block>\d+)\.)?(?P<layer>\w+)\.(?P<kind>\w+)\.(?P<field>[\w.]+)"
)


class ConversionError(ValueError):
    """A checkpoint that is not what it was taken for; the message names the file or the weight."""


def load_state_dict(path: str | Path) -> dict[str, torch.Tensor]:
    """Reads the weights of a `.pth` file without running code from it.

    Args:
        path: a file written by `torch.save`, of a state dict or of a dict that has one as `"model"` (detectron2) or
            `"state_dict"` (training scripts). Its values may be tensors or numpy arrays, and all its names may begin
            with `module.` (`DistributedDataParallel`), which is taken off.

    Raises:
        OSError: the file cannot be read.
        ConversionError: it holds something else than tensors and plain values.
    """
    path = Path(path)
    with open(path, "rb") as file:
        try:
            with torch.serialization.safe_globals([*numpy_classes(), argparse.Namespace]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of pickles that torch did not write
                loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # on bytes of another format torch raises errors of all kinds
            raise ConversionError(
                f"{path} is damaged, or no file of weights that can be read without running code from it "
                f"({type(error).__name__}); give a .pth file of a state dict."
            ) from error
    weights = loaded
    for wrapper in WRAPPERS:
        if isinstance(weights, dict) and isinstance(weights.get(wrapper), dict):
            weights = weights[wrapper]
    if not isinstance(weights, dict) or not weights:
        raise ConversionError(f"{path} holds no state dict, a table from names to tensors.")
    prefix = PARALLEL if all(str(name).startswith(PARALLEL) for name in weights) else ""
    return {str(name).removeprefix(prefix): as_tensor(value, name, path) for name, value in weights.items()}


def numpy_classes() -> list:
    """Returns what a pickled numpy array consists of, also under the names that numpy 1 gave it."""
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
    """Builds a model and fill it with the weights of another code base.

    Args:
        model_class, config: what to build.
        weights: the other code base's state dict.
        source_name: from the name of a weight of ours to its name in `weights`.
        heads: regular expression for names of weights that are no part of the backbone and may be left out.

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
    # torchvision's first checkpoints do not count batches.
    missing = sorted(name for name in names.values() if name not in weights and not name.endswith("batches_tracked"))
    if missing:
        number = f"{len(missing)} of {len(names)}"
        raise ConversionError(f"The checkpoint lacks weights of the architecture ({number}, {missing[0]} among them).")
    if unknown:
        raise ConversionError(
            f"The checkpoint has weights that the architecture lacks ({len(unknown)}, {unknown[0]} among them)."
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
    if any(buffer.is_meta for buffer in model.buffers()):  # those that are not saved
        model = model_class(config)
        model.load_state_dict(filled)
    return model.eval(), left_out


def resnext_weight(name: str) -> tuple[int, str | None, str | None, str, str]:
    """Takes the name of a weight of our ResNeXt apart.

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
        left_out: names of the weights of the checkpoint that are no part of it.
        preprocessing: arguments of its image processor.
    """

    model: PreTrainedModel
    left_out: list[str]
    preprocessing: dict[str, Any]


def save(conversion: Conversion, output: str | Path):
    """Writes a backbone and its image processor into a new folder, whole or not at all.

    Raises:
        FileExistsError: there is something of that name.
    """

    def write(folder: Path):
        conversion.model.save_pretrained(folder)
        CaptioningImageProcessor(**conversion.preprocessing).save_pretrained(folder)

    check_is_new(output)
    with without_progress_bars():
        replace_folder_contents(Path(output).absolute(), write)


def check_is_new(output: str | Path):
    if Path(output).exists():
        raise FileExistsError(f"{output} exists already; name a new folder.")


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
    """Writes a model and its processor into a new folder, whole or not at all."""
    with without_progress_bars():
        replace_folder_contents(Path(output).absolute(), lambda folder: save_model(model, processor, folder))


def main(
    description: str,
    architectures: Sequence[str],
    convert_weights: Callable[[str, dict[str, torch.Tensor]], Conversion],
    arguments: Sequence[str] | None = None,
    installed_checkpoint: Callable[[str], str] | None = None,
) -> int:
    """Runs the command line of a conversion script: read, convert, write, tell; returns 0, or 2 after an error.

    Args:
        description, architectures: for `--help`.
        convert_weights: from an architecture and a state dict to what is saved.
        arguments: of the command line; those of the process if `None`.
        installed_checkpoint: from an architecture to the file that is read without `--checkpoint`, which is required
            if there is no such function.
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
