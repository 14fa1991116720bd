"""Vision encoders that ONNX Runtime or OpenVINO runs on the CPU, in place of PyTorch.

    model, processor = load_model("captioner")
    use_engine(model, processor, "onnx")

The convolutional backbone is exported on first use, for images of the processor's height and width, into a cache that
processes share (`HF_ASSETS_CACHE` of huggingface_hub), by its weights and the versions of the packages. PyTorch stays
in charge of everything else, and of images of other sizes, gradients and hidden states.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import constants
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BackboneOutput

from ..ground.messages import one_sentence
from ..models.configuration_vision import is_patch_encoder
from ..models.convolutional_backbone import in_parts, is_inference
from ..models.modeling_vision import VisionModel
from ..store.folders import turn_to_write, write_folder_atomically
from .provenance import backbone_settings, weights_checksum

if TYPE_CHECKING:
    from ..exporting.captioner import Graph

ENGINES = ("torch", "onnx", "openvino", "auto")
TOLERANCE = 1e-4
"""Allowed difference of feature maps, as a share of their largest value."""
logger = logging.getLogger(__name__)


class EngineError(ValueError):
    """A model that an engine cannot run; the message has the reason."""


def use_engine(model: nn.Module, processor: Any, engine: str) -> None:
    """Lets an engine run the backbones of a model from now on, in inference.

    Args:
        model: a model with vision encoders, or one itself, in evaluation mode. Its weights must not change afterwards.
        processor: its processor or image processor.
        engine: `"torch"` changes nothing; `"onnx"` and `"openvino"` name the engine; `"auto"` takes ONNX Runtime if it
            is installed and the model can be run by it, else PyTorch.

    Raises:
        MissingExporterError: the engine is not installed.
        EngineError: there is no such engine, or it cannot run this model: it has no convolutional backbone, its images
            have no fixed height and width, or it is not in float32 on the CPU.
        UnexportableError: the backbone cannot be traced.
    """
    if engine not in ENGINES:
        raise EngineError(f"There is no engine {engine!r}; choose one of {', '.join(ENGINES)}.")
    if engine == "torch":
        return
    if engine != "auto":
        run_backbones(model, processor, engine)
        return
    try:
        run_backbones(model, processor, "onnx")
    except (ValueError, OSError) as error:
        logger.info("PyTorch runs this model: %s", one_sentence(error))


def run_backbones(model: nn.Module, processor: Any, engine: str) -> None:
    from ..exporting.formats import check_format

    check_format(engine)
    backbones: list[Any] = [part.backbone for part in model.modules() if has_convolutional_backbone(part)]
    if not backbones:
        raise EngineError(
            f"{type(model).__name__} has no convolutional backbone, which is what --engine {engine} runs; leave the "
            "option out."
        )
    size: Any = getattr(getattr(processor, "image_processor", processor), "size", None) or {}
    height, width = size.get("height"), size.get("width")
    if not (height and width):
        raise EngineError(
            f"--engine {engine} needs images of one height and width, and this image processor keeps their aspect "
            "ratios; leave the option out."
        )
    for backbone in backbones:
        if (backbone.device.type, backbone.dtype) != ("cpu", torch.float32):
            raise EngineError(
                f"--engine {engine} is for models in float32 on the CPU; this one is {backbone.dtype} on "
                f"{backbone.device}."
            )
    for backbone in backbones:
        graph = exported_backbone(backbone, (height, width), engine)
        backbone.forward = BackboneInEngine(backbone, graph, (height, width), engine)
    logger.info("The vision encoder runs in %s.", engine)


def has_convolutional_backbone(part: nn.Module) -> bool:
    return isinstance(part, VisionModel) and part.config.kind == "grid" and not is_patch_encoder(part.backbone.config)


class BackboneInEngine:
    """The forward pass of a backbone, by an exported graph where it can and by PyTorch elsewhere.

    The first image is encoded by both. If they differ, a warning says so and PyTorch encodes all images.
    """

    def __init__(self, backbone: PreTrainedModel, graph: "Graph", size: tuple[int, int], engine: str) -> None:
        self.in_torch: Callable[..., BackboneOutput] = partial(type(backbone).forward, backbone)
        self.graph, self.size, self.engine = graph, size, engine
        self.agrees: bool | None = None

    def __call__(self, pixel_values: torch.Tensor, **options: Any) -> BackboneOutput:
        given = pixel_values.device.type, pixel_values.dtype, tuple(pixel_values.shape[-2:])
        if options or given != ("cpu", torch.float32, self.size) or not is_inference() or self.agrees is False:
            return self.in_torch(pixel_values, **options)
        if self.agrees is None and not self.check(pixel_values[:1]):
            return self.in_torch(pixel_values)
        parts = [self.maps(part) for part in in_parts(pixel_values)]
        joined: Any = tuple(torch.cat(maps) for maps in zip(*parts, strict=True))
        return BackboneOutput(feature_maps=joined)

    def maps(self, pixel_values: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.from_numpy(array)
            for array in self.graph({"pixel_values": pixel_values.contiguous().numpy()}).values()
        ]

    def check(self, image: torch.Tensor) -> bool:
        """Compares both on one image."""
        expected: Any = self.in_torch(image).feature_maps
        differences = [
            float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1))
            for found, wanted in zip(self.maps(image), expected, strict=True)
        ]
        self.agrees = max(differences) <= TOLERANCE
        if not self.agrees:
            logger.warning(
                "The vision encoder in %s differs from PyTorch by %.1e of its largest value, and %.0e is allowed; "
                "PyTorch runs it.",
                self.engine,
                max(differences),
                TOLERANCE,
            )
        return self.agrees


class FeatureMaps(nn.Module):
    """The graph of a backbone: from pixels to its feature maps."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"map_{index}": one for index, one in enumerate(self.backbone(pixel_values).feature_maps)}


def exported_backbone(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> "Graph":
    """Returns the graph of a backbone from the cache, exported first if it is missing or damaged."""
    from ..exporting.captioner import load_graph
    from ..exporting.formats import FORMATS

    folder = Path(constants.HF_ASSETS_CACHE) / "hf_ngsan" / "engines" / cache_key(backbone, size, engine)
    file, threads = folder / f"vision{FORMATS[engine].suffix}", torch.get_num_threads()
    export_backbone(backbone, size, folder, engine)
    try:
        return load_graph(file, threads)
    except Exception:  # runtimes say in many ways that a file is damaged
        shutil.rmtree(folder, ignore_errors=True)
    export_backbone(backbone, size, folder, engine)
    return load_graph(file, threads)


def export_backbone(backbone: PreTrainedModel, size: tuple[int, int], folder: Path, engine: str) -> None:
    """Exports a backbone into a folder, unless the folder is there."""
    from ..exporting.formats import write_graph

    inputs, shapes = {"pixel_values": torch.zeros(2, 3, *size)}, {"pixel_values": {0: torch.export.Dim("images")}}
    with turn_to_write(folder) as is_missing:
        if is_missing:
            logger.info("Exporting the vision encoder to %s, once, into %s.", engine, folder)
            write_folder_atomically(
                folder,
                lambda new: write_graph(FeatureMaps(backbone).eval(), inputs, shapes, new / "vision", engine),
                manifest=False,
            )


def cache_key(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> str:
    """Returns a digest of all that a graph depends on."""
    from ..exporting.formats import FORMATS

    packages = ("hf-ngsan", "torch", "transformers", *FORMATS[engine].packages)
    parts = engine, size, backbone_settings(backbone.config), weights_checksum(backbone), [*map(version, packages)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
