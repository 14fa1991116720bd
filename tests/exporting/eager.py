"""Exported captioners whose graphs are run by PyTorch as they are, untraced: all of an export but its slow part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_ngsan.exporting import Captioner, captioner, folder, graphs, write_exported_captioner


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

    monkeypatch.setattr(graphs, "PACKAGES", ())
    monkeypatch.setattr(folder, "write_graph", remember)
    monkeypatch.setattr(captioner, "load_graph", lambda path, num_threads: run(kept[path.name]))


def eager_captioner(model, processor, place: Path, monkeypatch: pytest.MonkeyPatch) -> Captioner:
    """Writes an exported captioner without its graphs, and loads it with these in their place."""
    use_eager_graphs(monkeypatch)
    place.mkdir()
    write_exported_captioner(model, processor, place)
    return Captioner(place)
