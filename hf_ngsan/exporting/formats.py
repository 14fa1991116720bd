"""Formats of exported graphs, written by transformers' exporters."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging as transformers_logging

from ..io.messages import one_sentence


@dataclass(frozen=True)
class ExportFormat:
    """A format of graphs.

    Attributes:
        exporter, config: names of transformers' classes.
        suffix: suffix of a graph file; another file with weights may be beside it.
        packages: required packages.
        extra: extra of this package that installs them.
        options: options of the config.
    """

    exporter: str
    config: str
    suffix: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


FORMATS = {
    "onnx": ExportFormat("OnnxExporter", "OnnxConfig", ".onnx", ("onnx", "onnxscript", "onnxruntime"), "export"),
    "openvino": ExportFormat(
        # caches of beams are inputs and outputs, as in the other formats
        "OpenVINOExporter",
        "OpenVINOConfig",
        ".xml",
        ("openvino",),
        "openvino",
        {"stateful": False},
    ),
    "torch-export": ExportFormat("DynamoExporter", "DynamoConfig", ".pt2"),
}


class MissingExporterError(ValueError):
    """A package that a format needs is not installed; the message names it."""


class UnexportableError(ValueError):
    """A model that cannot be exported; the message has the reason."""


def check_format(name: str) -> None:
    """Raises a MissingExporterError unless graphs can be written in this format."""
    missing = [package for package in FORMATS[name].packages if find_spec(package) is None]
    if missing:
        raise MissingExporterError(
            f'Export to {name} needs {" and ".join(missing)}; pip install "hf-ngsan[{FORMATS[name].extra}]".'
        )


def write_graph(
    graph: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    shapes: Mapping[str, Mapping],
    path: Path,
    format_name: str,
    int8: bool = False,
) -> None:
    """Traces a graph and writes it.

    Args:
        graph: takes tensors by name and returns a dictionary of tensors.
        inputs: inputs to trace.
        shapes: dynamic shapes for `torch.export`.
        path: path of the file, without its suffix.
        format_name: one of `FORMATS`.
        int8: quantizes the weights of linear layers, and their inputs dynamically; only for `"onnx"`.

    Raises:
        UnexportableError: the exporter cannot trace or write the graph.
    """
    chosen = FORMATS[format_name]
    with quiet():
        exporters: Any = import_module("transformers.exporters")
        options = dict(chosen.options)
        if int8:
            # A reduced range, as sums of products of 8 bits overflow on processors without instructions for them.
            settings = {"op_types_to_quantize": ["MatMul", "Gemm"], "per_channel": True, "reduce_range": True}
            quantizer_config = exporters.OnnxRuntimeDynamicConfig(**settings)
            options["quantizer"] = exporters.OnnxRuntimeQuantizer(quantizer_config)
        config = getattr(exporters, chosen.config)(dynamic_shapes=dict(shapes), **options)
        exporter = getattr(exporters, chosen.exporter)()
        try:
            program, _ = exporter.export_program(graph, dict(inputs), config)
            forget_source(program)
            if isinstance(program, torch.export.ExportedProgram):
                content = io.BytesIO()  # torch's own writer aborts the process on a full disk
                torch.export.save(program, content)
                path.with_suffix(chosen.suffix).write_bytes(content.getbuffer())
            else:
                exporter.save_program(program, path.with_suffix(chosen.suffix))
        except (OSError, MemoryError):
            raise
        except Exception as error:  # exporters fail in many ways on what they cannot trace
            raise UnexportableError(
                f"The {path.name} of this model cannot be exported to {format_name} ({one_sentence(error)})."
            ) from error


def forget_source(program: Any) -> None:
    """Removes the source lines of operations, which name folders of this machine."""
    if isinstance(program, torch.export.ExportedProgram):
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
    elif hasattr(program, "graph"):  # of ONNX
        for node in program.graph.all_nodes():
            node.metadata_props.clear()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences progress and version warnings of exporters inside the `with` block."""
    verbosity = transformers_logging.get_verbosity()
    level = logging.root.manager.disable
    transformers_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        transformers_logging.set_verbosity(verbosity)
