"""Make the graphs beside a packaged model small, without any loss, after `hf-ngsan export` has written them.

    hf-ngsan export --model checkpoints/ngsan-photos
    python conversion/small_graphs.py checkpoints/ngsan-photos checkpoints/mhsan-photos

The weights of a captioner that half precision holds exactly are stored so, and cast when its graphs are opened: 15 MB
in place of 29. Those of a dual encoder are left out, and read from the files of the model and of the packages that its
text encoder and its backbone are from, where their bytes were found.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hf_ngsan import load_model
from hf_ngsan.exporting.onnx_folder import (
    CAPTIONER_GRAPHS,
    FOLDER,
    IMAGE,
    TEXT,
    TEXT_SETTINGS,
    place_of,
    record_sources,
)
from hf_ngsan.models.pretrained_weights import find_packaged_weights
from hf_ngsan.models.text_encoders import find_text_encoder

MIN_SIZE = 256  # of weights that are stored otherwise, in numbers
ORDERS = {2: [(1, 0)], 4: [(2, 3, 1, 0), (2, 3, 0, 1)]}
"""Of the axes of weights in files: linear layers of PyTorch, and convolutions, full and depthwise, of TensorFlow."""
FOLDING_ERROR = 1e-6  # of the rounding of a product, as a share of the largest weight


def make_small(folder: Path) -> None:
    """Rewrites the graphs in a model's folder, and their record."""
    graphs, packages = folder / FOLDER, []
    model: Any = load_model(str(folder))[0]
    weights = {name: tensor.numpy() for name, tensor in model.float().state_dict().items()}
    if (graphs / TEXT).is_file():
        if not model.config.save_frozen_weights:
            packages += Path(find_text_encoder(model.config.text_pretrained)).glob("*.safetensors")
        if not model.config.vision_config.save_frozen_weights:
            packages.append(find_packaged_weights(model.config.vision_config.pretrained))
        elsewhere = [f"{file.parent.parent.name}:{file.parent.name}/{file.name}" for file in packages]
        files = [*(file.name for file in folder.glob("*.safetensors")), *elsewhere]
        contents = {file: place_of(folder, file).read_bytes() for file in files}
        settings = json.loads((graphs / TEXT_SETTINGS).read_text(encoding="utf-8"))
        settings["weights"] = {name: leave_weights_out(graphs / name, weights, contents) for name in (TEXT, IMAGE)}
        (graphs / TEXT_SETTINGS).write_text(json.dumps(settings) + "\n", encoding="utf-8")
        record_sources(folder, graphs, elsewhere)
    else:
        for graph in CAPTIONER_GRAPHS:
            store_in_half(graphs / graph, weights)
        record_sources(folder, graphs)


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
            folded = unfolded(name, values, weights)
            if folded is None or not fits_half(folded[0]):
                continue
            values, factors = folded
        graph.graph.initializer.remove(tensor)
        graph.graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        result = name if factors is None else f"{name}_unfolded"
        nodes.append(helper.make_node("Cast", [f"{name}_half"], [result], to=onnx.TensorProto.FLOAT))
        if factors is not None:
            graph.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factors"))
            nodes.append(helper.make_node("Mul", [result, f"{name}_factors"], [name]))
    save_as_one(graph, nodes, path)


def fits_half(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())


def unfolded(name: str, values: np.ndarray, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the model's own weight and the factor of each channel whose product is a folded weight, if any."""
    own = next((own for key, own in weights.items() if name.endswith(f".{key}")), None)
    if own is None or own.shape != values.shape:
        return None
    axes = tuple(range(1, values.ndim))
    squares = (own.astype(np.float64) ** 2).sum(axes, keepdims=True)
    products = (own.astype(np.float64) * values).sum(axes, keepdims=True)
    factors = (products / np.where(squares == 0, 1, squares)).astype(np.float32)
    is_same = np.abs(own * factors - values).max() <= FOLDING_ERROR * np.abs(values).max()
    return (own, factors) if is_same else None


def leave_weights_out(
    path: Path, weights: Mapping[str, np.ndarray], contents: Mapping[str, bytes]
) -> dict[str, tuple[str, str, int, tuple[int, ...]]]:
    """Makes weights of a graph that are in files its inputs; returns file, type, offset and shape of each.

    The graph transposes and casts them, and multiplies those of a convolution with folded normalization by a factor
    for each channel.
    """
    graph, nodes, places = onnx.load(str(path)), [], {}
    for tensor in list(graph.graph.initializer):
        name, values, factors = tensor.name, numpy_helper.to_array(tensor), None
        if values.dtype != np.float32 or values.size < MIN_SIZE:
            continue
        found = find_bytes(values, contents)
        if found is None and (folded := unfolded(name, values, weights)) is not None:
            values, factors = folded
            found = find_bytes(values, contents)
        if found is None:
            continue
        file, stored, offset, order = found
        steps: list[tuple[str, list[str], dict[str, Any]]] = []
        if stored.dtype == np.float16:
            steps.append(("Cast", [], {"to": onnx.TensorProto.FLOAT}))
        if order != tuple(range(values.ndim)):
            steps.append(("Transpose", [], {"perm": np.argsort(order).tolist()}))
        if factors is not None:
            graph.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factors"))
            steps.append(("Mul", [f"{name}_factors"], {}))
        states = [f"{name}_{number}" for number in range(len(steps))] + [name]
        for given, result, (operation, others, settings) in zip(states, states[1:], steps, strict=False):
            nodes.append(helper.make_node(operation, [given, *others], [result], **settings))
        graph.graph.initializer.remove(tensor)
        kind = helper.np_dtype_to_tensor_dtype(stored.dtype)
        graph.graph.input.append(helper.make_tensor_value_info(states[0], kind, stored.shape))
        places[states[0]] = file, stored.dtype.name, offset, stored.shape
    save_as_one(graph, nodes, path)
    return places


def find_bytes(
    values: np.ndarray, contents: Mapping[str, bytes]
) -> tuple[str, np.ndarray, int, tuple[int, ...]] | None:
    """Finds a weight in files, in single or half precision; returns file, stored array, offset and order of axes."""
    for order in (tuple(range(values.ndim)), *ORDERS.get(values.ndim, ())):
        array = np.ascontiguousarray(values.transpose(order))
        for stored in [array, *([array.astype(np.float16)] if fits_half(array) else [])]:
            for file, content in contents.items():
                if (offset := content.find(stored.tobytes())) >= 0:
                    return file, stored, offset, order
    return None


def save_as_one(graph: Any, first: Sequence[Any], path: Path) -> None:
    """Writes a graph, with nodes before its own, as one file, without the `.data` of the exporter beside it."""
    for node in reversed(first):
        graph.graph.node.insert(0, node)
    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make_small(Path(name))
