"""Exported captioners whose graphs are run by PyTorch as they are, untraced: all of an export but its slow part."""

import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hf_ngsan.exporting import Captioner, captioner, folder, graphs, write_exported_captioner

NAMES = ("pixel_values", "input_ids", "attention_mask")
"""Inputs of the two graphs of a dual encoder."""


def use_eager_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps graphs in memory in place of writing them, by the names of their files."""
    kept: dict[str, Any] = {}

    def remember(graph, inputs, shapes, path: Path) -> None:
        assert shapes.keys() == inputs.keys()
        kept[path.name] = graph

    def run(graph) -> Callable:
        def call(inputs):
            with torch.no_grad():
                outputs = graph(**{name: torch.from_numpy(array) for name, array in inputs.items()})
            return {name: tensor.numpy().copy() for name, tensor in outputs.items()}

        return call

    class Session:
        def __init__(self, path, providers):
            tower = kept[Path(path).name]
            named = signature(getattr(tower.model, tower.features)).parameters
            self.call, self.inputs = run(tower), [SimpleNamespace(name=name) for name in named if name in NAMES]

        def get_inputs(self):
            return self.inputs

        def run(self, names, arrays):
            return [self.call(arrays)["features"]]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    monkeypatch.setattr(graphs, "PACKAGES", ())
    monkeypatch.setattr(folder, "write_graph", remember)
    monkeypatch.setattr(captioner, "load_graph", lambda path, num_threads: run(kept[path.name]))


def eager_captioner(model, processor, place: Path, monkeypatch: pytest.MonkeyPatch) -> Captioner:
    """Writes an exported captioner without its graphs, and loads it with these in their place."""
    use_eager_graphs(monkeypatch)
    place.mkdir()
    write_exported_captioner(model, processor, place)
    return Captioner(place)
