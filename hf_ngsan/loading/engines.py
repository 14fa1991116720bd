"""Runs convolutional backbones with ONNX Runtime on the CPU, in place of PyTorch.

A backbone is exported on first use, for images of the processor's height and width, into a cache that processes share
(`HF_ASSETS_CACHE` of huggingface_hub). The cache key has its weights and the versions of the packages. PyTorch computes
everything else: images of other sizes, gradients, hidden states, and the rest of the model.
"""

import hashlib
import json
import logging
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from torch import nn
from transformers.modeling_outputs import BackboneOutput

from ..exporting.captioner import Graph, load_graph
from ..exporting.graphs import PACKAGES, check_exporter, write_graph
from ..io.folders import turn_to_write, write_folder_atomically
from ..io.messages import one_sentence
from ..models.configuration_hub import check_choice
from ..models.modeling_vision import VisionModel, in_parts, is_inference
from ..models.transformers_backbones import is_patch_encoder
from .provenance import backbone_settings, weights_checksum

ENGINES = ("torch", "onnx", "auto")
TOLERANCE = 1e-4
"""Allowed difference of feature maps, relative to their largest value."""
logger = logging.getLogger(__name__)


def use_engine(model: nn.Module, processor: Any, engine: str | None) -> None:
    """Makes an engine run the convolutional backbones of a model in inference.

    Args:
        model: a vision encoder or a model with one, in evaluation mode. Its weights must not change afterwards.
        processor: its processor or image processor.
        engine: `None` and `"torch"` change nothing; `"onnx"` uses ONNX Runtime; `"auto"` uses it if it is installed and
            can run the backbones, and PyTorch otherwise.

    Raises:
        ValueError: there is no such engine, it is not installed, or it cannot run or trace this model.
    """
    check_choice("engine", engine, (None, *ENGINES))
    if engine in (None, "torch"):
        return
    try:
        run_backbones(model, processor)
    except (ValueError, OSError) as error:
        if engine == "onnx":
            raise
        logger.info("PyTorch runs this model: %s", one_sentence(error))


def run_backbones(model: nn.Module, processor: Any) -> None:
    check_exporter()
    visions: list[Any] = [
        part
        for part in model.modules()
        if isinstance(part, VisionModel) and part.config.kind == "grid" and not is_patch_encoder(part.backbone.config)
    ]
    size: Any = getattr(getattr(processor, "image_processor", processor), "size", None) or {}
    height, width = size.get("height"), size.get("width")
    on_cpu = all((vision.device.type, vision.dtype) == ("cpu", torch.float32) for vision in visions)
    if not (visions and height and width and on_cpu):
        raise ValueError(
            f"--engine onnx needs a convolutional backbone in float32 on the CPU, and images of one height and width; "
            f"this {type(model).__name__} is another model; leave it out."
        )
    for vision in visions:
        graph = exported(vision.backbone, (height, width))
        vision.backbone.forward = BackboneInEngine(vision.backbone, graph, (height, width))


def exported(backbone: Any, size: tuple[int, int]) -> Graph:
    """Returns the graph of a backbone for images of one size from the cache, after exporting it if it is missing."""
    versions = map(version, ("hf-ngsan", "torch", "transformers", *PACKAGES))
    parts = size, backbone_settings(backbone.config), weights_checksum(backbone), *versions
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
    folder = Path(constants.HF_ASSETS_CACHE) / "hf_ngsan" / "engines" / digest
    with turn_to_write(folder) as is_missing:
        if is_missing:
            logger.info("Exporting the vision encoder to onnx, once, into %s.", folder)
            pixels = {"pixel_values": torch.zeros(2, 3, *size)}
            write_folder_atomically(
                folder, lambda new: write_graph(backbone, feature_maps, pixels, new / "vision.onnx"), manifest=False
            )
    return load_graph(folder / "vision.onnx", torch.get_num_threads())


def feature_maps(backbone: Any, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
    return {f"map_{index}": scale for index, scale in enumerate(backbone(pixel_values).feature_maps)}


class BackboneInEngine:
    """Forward pass of a backbone that runs a graph in inference for images of its size, and PyTorch otherwise.

    Both encode the first image. If their results differ, PyTorch encodes all images.
    """

    def __init__(self, backbone: nn.Module, graph: Graph, size: tuple[int, int]) -> None:
        self.in_torch = partial(type(backbone).forward, backbone)
        self.graph, self.size = graph, size
        self.agrees: bool | None = None

    def __call__(self, pixel_values: torch.Tensor, **options: Any) -> BackboneOutput:
        is_usual = (pixel_values.device.type, pixel_values.dtype) == ("cpu", torch.float32)
        if options or not is_usual or tuple(pixel_values.shape[-2:]) != self.size or not is_inference():
            return self.in_torch(pixel_values, **options)
        if self.agrees is None:
            self.compare(pixel_values[:1])
        if not self.agrees:
            return self.in_torch(pixel_values)
        parts = [self.maps(part) for part in in_parts(pixel_values)]
        joined: Any = tuple(torch.cat(maps) for maps in zip(*parts, strict=True))
        return BackboneOutput(feature_maps=joined)

    def maps(self, pixel_values: torch.Tensor) -> list[torch.Tensor]:
        outputs = self.graph({"pixel_values": pixel_values.contiguous().numpy()})
        return [torch.from_numpy(array) for array in outputs.values()]

    def compare(self, image: torch.Tensor) -> None:
        """Keeps using the graph only if its feature maps are equal to those of PyTorch."""
        differences = [
            (result - expected).abs().max() / expected.abs().max().clamp(min=1)
            for result, expected in zip(self.maps(image), self.in_torch(image).feature_maps, strict=True)
        ]
        largest = float(torch.stack(differences).max())  # NaN if one difference is NaN
        self.agrees = largest <= TOLERANCE
        if not self.agrees:
            logger.warning("The ONNX vision encoder differs from PyTorch by %.1e; PyTorch is used instead.", largest)
