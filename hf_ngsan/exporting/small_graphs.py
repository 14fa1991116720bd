"""Graphs of ONNX made small without any loss: weights in half precision, or left in the files of their model.

They are files of their own, without the `.data` beside them that exporters write.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MIN_SIZE = 256
"""Numbers of the smallest weights that are changed."""
FOLDING_ERROR = 1e-6
"""Allowed difference, as a share of the largest weight, of what the rounding of a product leaves."""


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
            folded = unfolded(values, next((weights[one] for one in weights if name.endswith(f".{one}")), None))
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
    graph, found = onnx.load(str(path)), {}
    for tensor in list(graph.graph.initializer):
        values = numpy_helper.to_array(tensor)
        place = places.get(identity(values)) if values.dtype == np.float32 else None
        if place is not None:
            graph.graph.initializer.remove(tensor)
            graph.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            found[tensor.name] = place
    save_as_one(graph, path)
    return found


def identity(values: np.ndarray) -> tuple[tuple[int, ...], int]:
    return values.shape, hash(values.tobytes())


def save_as_one(graph: Any, path: Path) -> None:
    import onnx

    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
