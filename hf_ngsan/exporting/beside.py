"""Writing of graphs beside a model, in its folder `onnx/`, by which commands answer without torch; see [`onnx_folder`].

They are small without any loss: weights are in half precision if that holds them exactly, or stay in the files of their
model. Each is one file, without the `.data` beside it that exporters write.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..guests.dual_encoders import dual_encoder_of
from ..io.files import write_text_atomically
from ..io.folders import write_folder_atomically
from ..models.pretrained_weights import find_packaged_weights, is_packaged
from ..models.text_encoders import PACKAGES as TEXT_PACKAGES
from ..models.text_encoders import find_text_encoder
from ..registry import own_model_types
from .dual_encoder import MAX_FIXED_LENGTH, TEXTS, write_text_graph
from .folder import word_settings, write_captioner_graphs
from .graphs import UnexportableError, eager_attention
from .onnx_folder import CAPTIONER_GRAPHS, FOLDER, TEXT, TEXT_SETTINGS, place_of, record_sources

MIN_SIZE = 256
"""Numbers of the smallest weights that are changed."""
FOLDING_ERROR = 1e-6
"""Allowed difference, as a share of the largest weight, of what the rounding of a product leaves."""


def write_graphs_beside(model: PreTrainedModel, processor: Any, folder: Path, fingerprint: str | None = None) -> None:
    """Writes `onnx/` of a model of images, in place of an earlier one.

    Args:
        model: as it was loaded from the folder, in float32 on the CPU, in evaluation mode; a captioner or a dual
            encoder of this package.
        processor: the model's.
        folder: the model's.
        fingerprint: of a dual encoder, as indexes record it.

    Raises:
        UnexportableError: it has no exported form, is none of this package, is a captioner of pieces of words, or has
            weights elsewhere than in the folder and in installed packages.
    """
    config: Any = model.config
    if config.model_type not in own_model_types() or config.vision_config is None:
        raise UnexportableError(
            f"A {config.model_type} model without a vision encoder, or of another package, has no graphs in its own "
            "folder; name another one with --output."
        )
    if fingerprint is None and word_settings(processor.tokenizer)["vocabulary"] is None:
        raise UnexportableError("Its words consist of pieces; name another folder with --output.")
    elsewhere = weights_elsewhere(config)

    def write(target: Path) -> None:
        if fingerprint is None:
            write_captioner_graphs(model, processor, target)
            weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
            for graph in CAPTIONER_GRAPHS.values():
                store_in_half(target / graph, weights)
        else:
            settings = write_text_tower(model, processor, folder, target, elsewhere)
            text = json.dumps({**settings, "fingerprint": fingerprint}, indent=1)
            write_text_atomically(target / TEXT_SETTINGS, text + "\n")
        record_sources(folder, elsewhere, target)

    write_folder_atomically(folder / FOLDER, write, manifest=False)


def write_text_tower(
    model: PreTrainedModel, processor: Any, folder: Path, target: Path, elsewhere: list[str]
) -> dict[str, Any]:
    """Writes the graph of texts without its weights; returns its settings."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    encoder, tokenizer = dual_encoder_of(model, processor), processor.tokenizer
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_padding()
    if any(plain.encode(text).ids != tokenizer(text)["input_ids"] for text in TEXTS):
        raise UnexportableError(f"{folder}: tokenizer.json alone splits texts in another way than the tokenizer.")
    with eager_attention(model), torch.no_grad():
        fixed_length = write_text_graph(encoder, target)
    files = [file.name for file in folder.glob("*.safetensors")]
    files += [name for name in elsewhere if name.endswith(".safetensors")]
    tensors = {(file, name): tensor for file in files for name, tensor in load_file(place_of(folder, file)).items()}
    weights = leave_weights_out(target / TEXT, tensors)
    return {
        "inputs": list(encoder.text_inputs(TEXTS)),
        "longest_text": min(encoder.longest_text, MAX_FIXED_LENGTH) if fixed_length else encoder.longest_text,
        "fixed_length": fixed_length,
        "pad_token_id": tokenizer.pad_token_id,
        "special_ids": sorted({tokenizer.unk_token_id, *tokenizer.all_special_ids}),
        "weights": weights,
    }


def weights_elsewhere(config: Any) -> list[str]:
    """Returns the files of installed packages with weights that the model's folder leaves out, as `PACKAGE:FILE`."""
    files, vision = [], config.vision_config
    if not vision.save_frozen_weights:
        if not is_packaged(vision.pretrained):
            raise UnexportableError(f"Weights of the vision encoder are not in this folder but in {vision.pretrained}.")
        files.append(find_packaged_weights(vision.pretrained))
    if not getattr(config, "save_frozen_weights", True):
        if config.text_pretrained not in TEXT_PACKAGES:
            raise UnexportableError(
                f"Weights of the text encoder are not in this folder but in {config.text_pretrained}."
            )
        files += sorted(Path(find_text_encoder(config.text_pretrained)).glob("*.safetensors"))
    homes = [next(folder for folder in file.parents if (folder / "__init__.py").is_file()) for file in files]
    return [f"{home.name}:{file.relative_to(home).as_posix()}" for file, home in zip(files, homes, strict=True)]


def store_in_half(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Stores the weights that half precision holds exactly in it; the graph casts them when it is opened.

    A convolution into which normalization was folded is stored as the model's own weight and a factor for each
    channel.

    Args:
        path: of the graph, which is replaced.
        weights: the model's, float32, by name.
    """
    import onnx
    from onnx import helper, numpy_helper

    graph, nodes = onnx.load(str(path)), []
    for tensor in list(graph.graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < MIN_SIZE:
            continue
        name, factors = tensor.name, None
        if not fits_half(values):
            folded = unfolded(values, next((own for key, own in weights.items() if name.endswith(f".{key}")), None))
            if folded is None:
                continue
            values, factors = folded
        graph.graph.initializer.remove(tensor)
        graph.graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        result = name if factors is None else f"{name}_unfolded"
        nodes.append(helper.make_node("Cast", [f"{name}_half"], [result], to=onnx.TensorProto.FLOAT))
        if factors is not None:
            graph.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factors"))
            nodes.append(helper.make_node("Mul", [result, f"{name}_factors"], [name]))
    for node in reversed(nodes):
        graph.graph.node.insert(0, node)
    save_as_one(graph, path)


def fits_half(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())


def unfolded(values: np.ndarray, own: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns a weight in half precision and the factor of each channel whose product is a folded weight, if any."""
    if own is None or own.shape != values.shape or not fits_half(own):
        return None
    axes = tuple(range(1, values.ndim))
    squares = (own.astype(np.float64) ** 2).sum(axes, keepdims=True)
    products = (own.astype(np.float64) * values).sum(axes, keepdims=True)
    factors = (products / np.where(squares == 0, 1, squares)).astype(np.float32)
    is_same = np.abs(own * factors - values).max() <= FOLDING_ERROR * np.abs(values).max()
    return (own, factors) if is_same else None


def leave_weights_out(path: Path, tensors: Mapping[tuple[str, str], np.ndarray]) -> dict[str, tuple[str, str, bool]]:
    """Makes those weights of a graph its inputs that are tensors of some files.

    Args:
        path: of the graph, which is replaced.
        tensors: by file and name.

    Returns:
        By name of the input the file, the name there, and whether the tensor is transposed.
    """
    import onnx
    from onnx import helper, numpy_helper

    places: dict[Any, tuple[str, str, bool]] = {}
    for (file, name), tensor in tensors.items():
        if tensor.dtype in (np.float16, np.float32) and tensor.size >= MIN_SIZE:
            values = tensor.astype(np.float32)
            if values.ndim == 2:
                places.setdefault(identity(values.T), (file, name, True))
            places[identity(values)] = file, name, False
    graph, left_out = onnx.load(str(path)), {}
    for tensor in list(graph.graph.initializer):
        values = numpy_helper.to_array(tensor)
        place = places.get(identity(values)) if values.dtype == np.float32 else None
        if place is not None:
            graph.graph.initializer.remove(tensor)
            graph.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            left_out[tensor.name] = place
    save_as_one(graph, path)
    return left_out


def identity(values: np.ndarray) -> tuple[tuple[int, ...], int]:
    return values.shape, hash(values.tobytes())


def save_as_one(graph: Any, path: Path) -> None:
    """Writes a graph as one file, without the `.data` of the exporter beside it."""
    import onnx

    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
