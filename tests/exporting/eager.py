"""Exported captioners whose graphs are run by PyTorch as they are, untraced: all of an export but its slow part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_ngsan.exporting import Captioner, captioner, folder, formats, write_exported_captioner


def use_eager_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps graphs in memory in place of writing them, by the names of their files."""
    graphs: dict[str, Any] = {}

    def remember(graph, inputs, shapes, path: Path, format_name: str, int8: bool) -> None:
        assert shapes.keys() == inputs.keys()
        graphs[path.stem] = graph

    def run(graph) -> Callable:
        def call(inputs):
            with torch.no_grad():
                outputs = graph(**{name: torch.from_numpy(array) for name, array in inputs.items()})
            return {name: tensor.numpy().copy() for name, tensor in outputs.items()}

        return call

    monkeypatch.setattr(formats, "FORMATS", {**formats.FORMATS, "onnx": formats.ExportFormat("", "", ".onnx")})
    monkeypatch.setattr(folder, "write_graph", remember)
    monkeypatch.setattr(captioner, "load_graph", lambda path, num_threads: run(graphs[path.stem]))


def eager_captioner(model, processor, place: Path, monkeypatch: pytest.MonkeyPatch) -> Captioner:
    """Writes an exported captioner without its graphs, and loads it with these in their place."""
    use_eager_graphs(monkeypatch)
    place.mkdir()
    write_exported_captioner(model, processor, place)
    return Captioner(place)
