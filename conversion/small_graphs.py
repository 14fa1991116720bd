"""Make the ONNX graphs of a packaged model small without loss, after `hf-ngsan export` has written them.

    hf-ngsan export --model checkpoints/ngsan-photos
    python conversion/small_graphs.py checkpoints/ngsan-photos checkpoints/mhsan-photos

The graphs leave out weights that occur byte for byte in the files of the model, or of the packages of its text encoder
and backbone, and refer to these files: 0.6 MB instead of 29 for a captioner.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hf_ngsan import load_model
from hf_ngsan.exporting.onnx_folder import FOLDER, GRAPHS, TEXT, WEIGHTS, place_of, record_sources
from hf_ngsan.models.pretrained_weights import find_packaged_weights
from hf_ngsan.models.text_encoders import find_text_encoder

MIN_SIZE = 256  # minimum number of values of weights that are left out
ORDERS = {2: [(1, 0)], 4: [(2, 3, 1, 0), (2, 3, 0, 1)]}
"""Orders of axes in files: linear layers of PyTorch, and full and depthwise convolutions of TensorFlow."""
FOLDING_ERROR = 1e-6  # tolerance for rounding of a product, as a share of the largest weight


def make_small(folder: Path) -> None:
    """Rewrites the graphs in a model's folder and their record."""
    graphs, packages = folder / FOLDER, list[Path]()
    model: Any = load_model(str(folder))[0]
    weights = {name: tensor.numpy() for name, tensor in model.float().state_dict().items()}
    if not getattr(model.config, "save_frozen_weights", True):
        packages += Path(find_text_encoder(model.config.text_pretrained)).glob("*.safetensors")
    if not model.config.vision_config.save_frozen_weights:
        packages.append(find_packaged_weights(model.config.vision_config.pretrained))
    elsewhere = [f"{file.parent.parent.name}:{file.parent.name}/{file.name}" for file in packages]
    files = [*(file.name for file in folder.glob("*.safetensors")), *elsewhere]
    contents = {file: place_of(folder, file).read_bytes() for file in files}
    places = {name: leave_weights_out(graphs / name, weights, contents) for name in GRAPHS if (graphs / name).is_file()}
    (graphs / WEIGHTS).write_text(json.dumps(places) + "\n", encoding="utf-8")
    record_sources(folder, graphs, elsewhere)


def fits_half(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())


def unfolded(name: str, values: np.ndarray, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the model's weight and the factors of channels whose product is a folded weight, if there are any."""
    weight = next((weight for key, weight in weights.items() if name.endswith(f".{key}")), None)
    if weight is None or weight.shape != values.shape:
        return None
    axes = tuple(range(1, values.ndim))
    squares = (weight.astype(np.float64) ** 2).sum(axes, keepdims=True)
    products = (weight.astype(np.float64) * values).sum(axes, keepdims=True)
    factors = (products / np.where(squares == 0, 1, squares)).astype(np.float32)
    is_same = np.abs(weight * factors - values).max() <= FOLDING_ERROR * np.abs(values).max()
    return (weight, factors) if is_same else None


def leave_weights_out(
    path: Path, weights: Mapping[str, np.ndarray], contents: Mapping[str, bytes]
) -> dict[str, tuple[str, str, int, tuple[int, ...]]]:
    """Removes weights that are in files from a graph; returns the file, type, offset and shape of each.

    The graph transposes and casts weights, and multiplies those of a convolution with folded normalization by a factor
    for each channel. Weights of a graph for texts become inputs, of which it reads a part.
    """
    graph, nodes, places = onnx.load(str(path)), [], {}
    for tensor in list(graph.graph.initializer):
        name, values, factors = tensor.name, numpy_helper.to_array(tensor), None
        if values.dtype != np.float32 or values.size < MIN_SIZE:
            continue
        place = find_bytes(values, contents)
        if place is None and (folded := unfolded(name, values, weights)) is not None:
            values, factors = folded
            place = find_bytes(values, contents)
        if place is None:
            continue
        file, stored, offset, order = place
        steps: list[tuple[str, list[str], dict[str, Any]]] = []
        if stored.dtype == np.float16:
            steps.append(("Cast", [], {"to": onnx.TensorProto.FLOAT}))
        if order != tuple(range(values.ndim)):
            steps.append(("Transpose", [], {"perm": np.argsort(order).tolist()}))
        if factors is not None:
            graph.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factors"))
            steps.append(("Mul", [f"{name}_factors"], {}))
        states = [f"{name}_{number}" for number in range(len(steps))] + [name]
        for state, result, (operation, others, settings) in zip(states, states[1:], steps, strict=False):
            nodes.append(helper.make_node(operation, [state, *others], [result], **settings))
        graph.graph.initializer.remove(tensor)
        kind = helper.np_dtype_to_tensor_dtype(stored.dtype)
        if path.name == TEXT:
            graph.graph.input.append(helper.make_tensor_value_info(states[0], kind, stored.shape))
        else:
            left_out: Any = onnx.TensorProto(name=states[0], data_type=kind, dims=stored.shape)
            left_out.data_location = onnx.TensorProto.EXTERNAL
            left_out.external_data.add(key="location", value=WEIGHTS)
            graph.graph.initializer.append(left_out)
        places[states[0]] = file, stored.dtype.name, offset, stored.shape
    for node in reversed(nodes):
        graph.graph.node.insert(0, node)
    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # written by the exporter
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


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make_small(Path(name))
