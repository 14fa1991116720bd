"""Make the graphs beside a packaged model small, without any loss, after `hf-ngsan export` has written them.

    hf-ngsan export --model checkpoints/ngsan-flickr8k
    python conversion/small_graphs.py checkpoints/ngsan-flickr8k checkpoints/mhsan-flickr8k

The weights of a captioner that half precision holds exactly are stored so, and cast when its graphs are opened: 15 MB
in place of 29. Those of a text encoder are left out, and read from the files of the model and of the package that it is
from.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from safetensors.numpy import load_file

from hf_ngsan import load_model
from hf_ngsan.exporting.onnx_folder import CAPTIONER_GRAPHS, FOLDER, TEXT, TEXT_SETTINGS, place_of, record_sources
from hf_ngsan.models.text_encoders import find_text_encoder

MIN_SIZE = 256  # of weights that are stored otherwise, in numbers
FOLDING_ERROR = 1e-6  # of the rounding of a product, as a share of the largest weight


def make_small(folder: Path) -> None:
    """Rewrites the graphs in a model's folder, and their record."""
    graphs, elsewhere = folder / FOLDER, []
    model: Any = load_model(str(folder))[0]
    if (graphs / TEXT).is_file():
        files = [file.name for file in folder.glob("*.safetensors")]
        if not model.config.save_frozen_weights:
            package = Path(find_text_encoder(model.config.text_pretrained))
            elsewhere = [f"{package.parent.name}:{package.name}/{file.name}" for file in package.glob("*.safetensors")]
        tensors = {
            (file, name): tensor
            for file in [*files, *elsewhere]
            for name, tensor in load_file(place_of(folder, file)).items()
        }
        settings = json.loads((graphs / TEXT_SETTINGS).read_text(encoding="utf-8"))
        settings["weights"] |= leave_weights_out(graphs / TEXT, tensors)
        (graphs / TEXT_SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    else:
        weights = {name: tensor.numpy() for name, tensor in model.float().state_dict().items()}
        for graph in CAPTIONER_GRAPHS:
            store_in_half(graphs / graph, weights)
    record_sources(folder, graphs, elsewhere)


def store_in_half(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Stores the weights of a graph that half precision holds exactly in it; the graph casts them when it is opened.

    A convolution with folded normalization is stored as the model's own weight, and a factor for each channel.
    """
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
    """Makes weights of a graph that are `tensors` its inputs; returns file, name and whether transposed of each."""

    def identity(values: np.ndarray) -> tuple[tuple[int, ...], int]:
        return values.shape, hash(values.tobytes())

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


def save_as_one(graph: Any, path: Path) -> None:
    """Writes a graph as one file, without the `.data` of the exporter beside it."""
    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make_small(Path(name))
