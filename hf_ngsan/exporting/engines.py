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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from huggingface_hub import constants
from torch import nn
from torch.export import Dim
from transformers import PreTrainedModel
from transformers.modeling_outputs import BackboneOutput

from ..ground.messages import one_sentence
from ..models.configuration_vision import is_patch_encoder
from ..models.convolutional_backbone import in_parts, is_inference
from ..models.modeling_vision import VisionModel
from ..store.folders import write_folder_atomically
from .captioner import Graph, load_graph
from .formats import FORMATS, check_format, write_graph

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
        check_format(engine)
        run_backbones(model, processor, engine)
        return
    try:
        check_format("onnx")
        run_backbones(model, processor, "onnx")
    except (ValueError, OSError) as error:
        logger.info("PyTorch runs this model: %s", one_sentence(error))


def run_backbones(model: nn.Module, processor: Any, engine: str) -> None:
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
        graph = graph_of(backbone, (height, width), engine)
        backbone.forward = BackboneInEngine(backbone, graph, (height, width), engine)
    logger.info("The vision encoder runs in %s %s.", engine, version(FORMATS[engine].packages[-1]))


def has_convolutional_backbone(part: nn.Module) -> bool:
    return isinstance(part, VisionModel) and part.config.kind == "grid" and not is_patch_encoder(part.backbone.config)


class BackboneInEngine:
    """The forward pass of a backbone, by an exported graph where it can and by PyTorch elsewhere.

    The first image is encoded by both. If they differ, a warning says so and PyTorch encodes all images.
    """

    def __init__(self, backbone: PreTrainedModel, graph: Graph, size: tuple[int, int], engine: str) -> None:
        self.in_torch: Callable[..., BackboneOutput] = type(backbone).forward.__get__(backbone)
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


def graph_of(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> Graph:
    file = exported_backbone(backbone, size, engine)
    try:
        return load_graph(file, torch.get_num_threads())
    except Exception:  # runtimes say in many ways that a file is damaged
        shutil.rmtree(file.parent, ignore_errors=True)
    return load_graph(exported_backbone(backbone, size, engine), torch.get_num_threads())


def exported_backbone(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> Path:
    """Returns the graph of a backbone in the cache, written if it is not there; other processes wait meanwhile."""
    folder = Path(constants.HF_ASSETS_CACHE) / "hf_ngsan" / "engines" / key_of(backbone, size, engine)
    file = folder / f"vision{FORMATS[engine].suffix}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                logger.info("Exporting the vision encoder to %s, once, into %s.", engine, folder)
                write_folder_atomically(folder, lambda new: write_maps(backbone, size, new / file.stem, engine), False)
    return file


def write_maps(backbone: PreTrainedModel, size: tuple[int, int], path: Path, engine: str) -> None:
    backbone.__dict__.pop("forward", None)  # of another engine
    pixels = torch.zeros(2, 3, *size)
    write_graph(
        FeatureMaps(backbone).eval(), {"pixel_values": pixels}, {"pixel_values": {0: Dim("images")}}, path, engine
    )


def key_of(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> str:
    """Returns the name of a graph in the cache: a digest of all that it depends on."""
    packages = ("hf-ngsan", "torch", "transformers", *FORMATS[engine].packages)
    config = {name: value for name, value in backbone.config.to_dict().items() if name != "_name_or_path"}
    described = [engine, size, type(backbone).__name__, config, [f"{name} {version(name)}" for name in packages]]
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, weight in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]
