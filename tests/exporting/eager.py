"""Exported graphs that PyTorch runs directly: everything of an export and its use except the slow tracing."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from hf_ngsan.exporting import ExportedCaptioner, folder, graphs, write_exported_captioner


def use_eager_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps graphs in memory instead of writing them, by file name, and runs them from there."""
    kept: dict[str, Any] = {}

    def remember(model, function, inputs, path: Path, varying=None) -> None:
        with torch.no_grad():
            kept[path.name] = partial(function, model), list(inputs), list(function(model, **inputs))
        path.write_text(path.name)

    class Session:
        def __init__(self, path: str, options: Any = None, providers: Any = None) -> None:
            self.function, inputs, outputs = kept[Path(path).name]
            self.get_inputs, self.get_outputs = (
                lambda names=names: [SimpleNamespace(name=name) for name in names] for names in (inputs, outputs)
            )

        def run(self, names: list[str] | None, arrays: dict) -> list:
            with torch.no_grad():
                outputs = self.function(**{name: torch.from_numpy(array) for name, array in arrays.items()})
            return [outputs[name].numpy().copy() for name in names or outputs]

    runtime = MagicMock(InferenceSession=Session, get_available_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(graphs, "PACKAGES", ())
    monkeypatch.setattr(folder, "write_graph", remember)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)


def eager_captioner(model, processor, place: Path, monkeypatch: pytest.MonkeyPatch) -> ExportedCaptioner:
    """Writes an exported captioner without its graphs, and loads it with the graphs in memory."""
    use_eager_graphs(monkeypatch)
    place.mkdir()
    write_exported_captioner(model, processor, place)
    return ExportedCaptioner(place)
