"""Graphs of packaged models become smaller without loss."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the extra photos is not installed")
pytest.importorskip("onnx", reason="the extra export is not installed")

import onnx
import small_graphs

from hf_ngsan.exporting.captioner import load_graph


def test_small_graphs_compute_the_same(tmp_path):
    """Without the weights of a convolution with folded normalization, of a layer in half precision and of another."""
    random, file, helper = np.random.default_rng(0), tmp_path / "graph.onnx", onnx.helper
    shapes = {"kernel": (8, 3, 5, 5), "linear": (8, 64), "fine": (64, 64)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {name: weights[name].astype(np.float16).astype(np.float32) for name in ("kernel", "linear")}
    weights["kernel"][2] = 0
    factors = random.uniform(0.5, 2, (8, 1, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["pixels", "graph.kernel"], ["maps"]),
        helper.make_node("ReduceMean", ["maps"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["means", "graph.linear"], ["states"]),
        helper.make_node("MatMul", ["states", "fine"], ["features"]),
    ]
    stored = {"graph.kernel": weights["kernel"] * factors, "graph.linear": weights["linear"], "fine": weights["fine"]}
    infos = {"pixels": [1, 3, 9, 9], "features": [1, 64]}
    pixels, features = ([helper.make_tensor_value_info(name, 1, shape)] for name, shape in infos.items())
    tensors = [onnx.numpy_helper.from_array(values, name) for name, values in stored.items()]
    graph = helper.make_graph(nodes, "graph", pixels, features, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(file))
    inputs = random.standard_normal((1, 3, 9, 9)).astype(np.float32)

    def run(**left_out):
        return load_graph(file, weights=left_out)({"pixels": inputs})["features"]

    expected, size = run(), file.stat().st_size
    kernel, linear = weights["kernel"].astype(np.float16), weights["linear"].T.astype(np.float16, order="C")
    stored = [kernel, linear, weights["fine"]]
    contents = {str(number): b"header" + array.tobytes() for number, array in enumerate(stored)}
    places = small_graphs.leave_weights_out(file, weights, contents)
    assert [place[1:] for place in places.values()] == [(array.dtype.name, 6, array.shape) for array in stored]
    assert size - file.stat().st_size == pytest.approx(4 * sum(array.size for array in stored), abs=1000)
    assert run(**dict(zip(places, stored, strict=True))) == pytest.approx(expected, rel=1e-4, abs=1e-4)
