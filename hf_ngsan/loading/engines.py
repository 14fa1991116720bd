"""Models that ONNX Runtime or OpenVINO runs on the CPU, in place of PyTorch.

```python
model, processor = load_model("captioner")
use_engine(model, processor, "onnx")
```

Convolutional backbones, and the encoder and the steps of the decoder of a captioner, are exported on first use, for
images of the processor's height and width, into a cache that processes share (`HF_ASSETS_CACHE` of huggingface_hub), by
their weights and the versions of the packages. PyTorch stays in charge of everything else: images of other sizes,
gradients, hidden states, attention weights, words that are given.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import (
    BackboneOutput,
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
)

from ..exporting.captioner import Graph, load_graph
from ..exporting.folder import eager_attention
from ..exporting.formats import FORMATS, UnexportableError, check_format, write_graph
from ..exporting.graphs import (
    DecoderStatesGraph,
    EncoderStatesGraph,
    VisualKeysGraph,
    decoder_inputs,
    dynamic_shapes,
    number_of_regions,
)
from ..io.folders import turn_to_write, write_folder_atomically
from ..io.messages import one_sentence
from ..models.captioning import CaptionCache, CaptioningForConditionalGeneration
from ..models.modeling_vision import VisionModel, in_parts, is_inference
from ..models.transformers_backbones import is_patch_encoder
from .provenance import backbone_settings, unusual_settings, weights_checksum

ENGINES = ("torch", "onnx", "openvino", "auto")
TOLERANCE = 1e-4
"""Allowed difference of outputs, as a share of their largest value."""
NO_EFFECT = {"return_dict", "use_cache", "pixel_values"}
"""Arguments of an encoder or decoder of words and visual features that change nothing."""
logger = logging.getLogger(__name__)


class EngineError(ValueError):
    """A model that an engine cannot run; the message has the reason."""


def use_engine(model: nn.Module, processor: Any, engine: str) -> None:
    """Lets an engine run the backbones and captioners of a model from now on, in inference.

    Args:
        model: a model with vision encoders, or one itself, in evaluation mode. Its weights must not change afterwards.
        processor: its processor or image processor.
        engine: `"torch"` changes nothing; `"onnx"` and `"openvino"` name the engine; `"auto"` takes ONNX Runtime if it
            is installed and the model can be run by it, else PyTorch.

    Raises:
        MissingExporterError: the engine is not installed.
        EngineError: there is no such engine, or it cannot run this model: it has no convolutional backbone, its images
            have no fixed height and width, it is not in float32 on the CPU, or its exported graphs are damaged and
            cannot be replaced.
        UnexportableError: the backbone cannot be traced.
    """
    if engine not in ENGINES:
        raise EngineError(f"There is no engine {engine!r}; choose one of {', '.join(ENGINES)}.")
    if engine == "auto":
        try:
            run_parts(model, processor, "onnx")
        except (ValueError, OSError) as error:
            logger.info("PyTorch runs this model: %s", one_sentence(error))
    elif engine != "torch":
        run_parts(model, processor, engine)


def run_parts(model: nn.Module, processor: Any, engine: str) -> None:
    check_format(engine)
    visions: list[Any] = [part for part in model.modules() if has_convolutional_backbone(part)]
    if not visions:
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
    for vision in visions:
        if (vision.device.type, vision.dtype) != ("cpu", torch.float32):
            raise EngineError(
                f"--engine {engine} is for models in float32 on the CPU; this one is {vision.dtype} on {vision.device}."
            )
    for captioner in model.modules():
        if isinstance(captioner, CaptioningForConditionalGeneration) and captioner.model.vision in visions:
            try:
                run_captioner(captioner, (height, width), engine)
                logger.info("Encoder and decoder run in %s.", engine)
            except UnexportableError as error:
                logger.info("PyTorch runs encoder and decoder: %s", one_sentence(error))
    for vision in visions:
        run_backbone(vision.backbone, (height, width), engine)
    logger.info("The vision encoder runs in %s.", engine)


def has_convolutional_backbone(part: nn.Module) -> bool:
    return isinstance(part, VisionModel) and part.config.kind == "grid" and not is_patch_encoder(part.backbone.config)


def run_backbone(backbone: PreTrainedModel, size: tuple[int, int], engine: str) -> None:
    """Exports a backbone if needed, and lets the engine run it."""
    inputs, shapes = {"pixel_values": torch.zeros(2, 3, *size)}, {"pixel_values": {0: torch.export.Dim("images")}}

    def write(folder: Path) -> None:
        write_graph(FeatureMaps(backbone).eval(), inputs, shapes, folder / "vision", engine)

    key = (backbone_settings(backbone.config), weights_checksum(backbone))
    (graph,) = exported(["vision"], write, size, key, engine)
    backbone.forward = BackboneInEngine(backbone, graph, engine, size)


def run_captioner(captioner: Any, size: tuple[int, int], engine: str) -> None:
    """Exports the encoder and a step of the decoder of a captioner if needed, and lets the engine run them.

    Raises:
        UnexportableError: one of them cannot be traced.
    """
    regions_vary = number_of_regions(captioner.config) is None
    if regions_vary and getattr(captioner.config, "grid_position_embedding", False):
        raise UnexportableError("It takes grids of any size and places cells by their order, which is not exported.")

    def write(folder: Path) -> None:
        with eager_attention(captioner), torch.no_grad():
            pixels = {"pixel_values": torch.zeros(2, 3, *size)}
            seen = captioner.model.get_visual_tokens(**pixels)
            visual = {"visual_features": seen.visual_features}
            if captioner.config.reads_boxes:
                visual["visual_boxes"] = seen.visual_boxes.contiguous()
            states = {"hidden_states": captioner.model.encoder(**visual).last_hidden_state}
            for name, graph, inputs in (
                ("encoder", EncoderStatesGraph, visual),
                ("keys", VisualKeysGraph, states),
                ("decoder", DecoderStatesGraph, decoder_inputs(captioner, pixels)),
            ):
                shapes = dynamic_shapes(inputs, regions_vary)
                write_graph(graph(captioner).eval(), inputs, shapes, folder / name, engine)

    key = (captioner.config.model_type, unusual_settings(captioner.config), weights_checksum(captioner))
    encoder, keys, decoder = exported(["encoder", "keys", "decoder"], write, size, key, engine)
    model = captioner.model
    model.encoder.forward = EncoderInEngine(model.encoder, encoder, engine, captioner.config)
    model.decoder.forward = DecoderInEngine(model.decoder, decoder, engine, keys)


class PartInEngine:
    """The forward pass of a part of a model, by an exported graph where it can and by PyTorch elsewhere.

    The first input is computed by both. If they differ, a warning says so and PyTorch computes all of them.
    """

    name: str

    def __init__(self, part: nn.Module, graph: Graph, engine: str) -> None:
        self.in_torch: Callable[..., Any] = partial(type(part).forward, part)
        self.graph, self.engine = graph, engine
        self.agrees: bool | None = None

    def run(self, graph: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        arrays = {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}
        return {name: torch.from_numpy(array) for name, array in graph(arrays).items()}

    def may_run(self, *inputs: torch.Tensor) -> bool:
        if self.agrees is False or not is_inference():
            return False
        return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in inputs)

    def compare(self, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
        """Returns whether the outputs of the engine are those of PyTorch, which decides who runs from now on."""
        differences = [
            (one - wanted).abs().max() / wanted.abs().max().clamp(min=1)
            for one, wanted in zip(found, expected, strict=True)
        ]
        largest = float(torch.stack(differences).max())  # NaN if one of them is
        self.agrees = self.agrees is not False and largest <= TOLERANCE
        if not self.agrees:
            logger.warning(
                "The %s in %s differs from PyTorch by %.1e of its largest value, and %.0e is allowed; PyTorch runs it.",
                self.name,
                self.engine,
                largest,
                TOLERANCE,
            )
        return self.agrees


class BackboneInEngine(PartInEngine):
    """A backbone, for images of one size."""

    name = "vision encoder"

    def __init__(self, part: nn.Module, graph: Graph, engine: str, size: tuple[int, int]) -> None:
        super().__init__(part, graph, engine)
        self.size = size

    def __call__(self, pixel_values: torch.Tensor, **options: Any) -> BackboneOutput:
        if options or tuple(pixel_values.shape[-2:]) != self.size or not self.may_run(pixel_values):
            return self.in_torch(pixel_values, **options)
        if self.agrees is None:
            first = pixel_values[:1]
            if not self.compare(self.maps(first), self.in_torch(first).feature_maps):
                return self.in_torch(pixel_values)
        parts = [self.maps(part) for part in in_parts(pixel_values)]
        joined: Any = tuple(torch.cat(maps) for maps in zip(*parts, strict=True))
        return BackboneOutput(feature_maps=joined)

    def maps(self, pixel_values: torch.Tensor) -> list[torch.Tensor]:
        return list(self.run(self.graph, {"pixel_values": pixel_values}).values())


class EncoderInEngine(PartInEngine):
    """The encoder of a captioner, for a fixed number of visual tokens or for any."""

    name = "encoder"

    def __init__(self, part: nn.Module, graph: Graph, engine: str, config: Any) -> None:
        super().__init__(part, graph, engine)
        self.reads_boxes, self.feature_size = config.reads_boxes, config.visual_feature_size
        self.number = number_of_regions(config)

    def __call__(
        self,
        visual_features: torch.Tensor,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> BaseModelOutput:
        given = {"visual_features": visual_features, "visual_boxes": visual_boxes, "attention_mask": attention_mask}
        inputs = {"visual_features": visual_features}
        if self.reads_boxes and visual_boxes is not None:
            inputs["visual_boxes"] = visual_boxes
        is_usual = is_all_real(attention_mask) and not asks_for_more(options) and self.may_run(*inputs.values())
        if not (is_usual and self.fits(inputs)):
            return self.in_torch(**given, **options)
        found = self.run(self.graph, inputs)["hidden_states"]
        if self.agrees is None:
            outputs = self.in_torch(**given)
            self.compare([found], [outputs.last_hidden_state])
            return outputs
        return BaseModelOutput(last_hidden_state=found)

    def fits(self, inputs: Mapping[str, torch.Tensor]) -> bool:
        """Returns whether inputs have the shapes of the graph; for others PyTorch raises the error."""
        shape = inputs["visual_features"].shape
        if len(shape) != 3 or shape[2] != self.feature_size or self.number not in (None, shape[1]):
            return False
        return not self.reads_boxes or ("visual_boxes" in inputs and inputs["visual_boxes"].shape == (*shape[:2], 4))


class DecoderInEngine(PartInEngine):
    """The decoder of a captioner, for one more word of each caption.

    The first caption shows the sizes of its states: until then PyTorch decodes the first word.
    """

    name = "decoder"

    def __init__(self, part: nn.Module, graph: Graph, engine: str, keys: Graph) -> None:
        super().__init__(part, graph, engine)
        self.keys = keys
        self.sizes: list[tuple[int, int]] | None = None
        self.compared: set[bool] = set()

    def __call__(self, **given: Any) -> Any:
        inputs = self.inputs_of(**given) if self.may_run() else None
        if inputs is None:
            return self.in_torch(**given)
        cache: Any = given["cache"]
        is_first = cache.get_seq_length() == 0
        found = self.run(self.graph, inputs)
        states = found.pop("hidden_states").flatten(0, 1)[:, None]
        if is_first not in self.compared:
            outputs = self.in_torch(**given)
            self.compared.add(is_first)
            self.compare([states], [outputs.last_hidden_state])
            self.sizes = [tuple(layer.keys.shape[1::2]) for layer in cache.self_attention_cache.layers]
            return outputs
        for index in range(len(found) // 2):
            written = found[f"keys_{index}"].flatten(0, 1), found[f"values_{index}"].flatten(0, 1)
            if is_first:
                cache.self_attention_cache.update(*written, index)
            else:
                layer = cache.self_attention_cache.layers[index]
                layer.keys, layer.values = written
        if is_first:
            for index in range(sum(name.startswith("visual_keys_") for name in inputs)):
                seen = inputs[f"visual_keys_{index}"], inputs[f"visual_values_{index}"]
                cache.cross_attention_cache.update(*seen, index)
                cache.is_updated[index] = True
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states, cache=cache)

    def inputs_of(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **options: Any,
    ) -> dict[str, torch.Tensor] | None:
        """Returns the inputs of the graph, or None for arguments that are not those of a step without padding."""
        if not use_cache or input_ids is None or input_ids.shape[1] != 1 or asks_for_more(options):
            return None
        if not isinstance(cache, CaptionCache) or not isinstance(cache.self_attention_cache, DynamicCache):
            return None
        if encoder_hidden_states is None or not is_all_real(attention_mask) or not is_all_real(encoder_attention_mask):
            return None
        past, number = cache.get_seq_length(), len(encoder_hidden_states)
        if len(input_ids) % number or (position_ids is not None and bool((position_ids != past).any())):
            return None
        captions = number, len(input_ids) // number
        inputs = {"input_ids": input_ids.view(captions)}
        if past == 0:
            if self.sizes is None or len(self.sizes) != len(cache.self_attention_cache):
                return None
            if any(cache.is_updated.values()):
                return None
            inputs |= self.run(self.keys, {"hidden_states": encoder_hidden_states})
            for index, (heads, size) in enumerate(self.sizes):
                empty = encoder_hidden_states.new_zeros(*captions, heads, 0, size)
                inputs |= {f"past_keys_{index}": empty, f"past_values_{index}": empty}
            return inputs
        images: Any = cache.cross_attention_cache.layers
        words: Any = cache.self_attention_cache.layers
        for index, layer in enumerate(images):
            inputs |= {f"visual_keys_{index}": layer.keys, f"visual_values_{index}": layer.values}
        for index, layer in enumerate(words):
            inputs[f"past_keys_{index}"] = layer.keys.unflatten(0, captions)
            inputs[f"past_values_{index}"] = layer.values.unflatten(0, captions)
        return inputs


def is_all_real(mask: torch.Tensor | None) -> bool:
    return mask is None or bool((mask == 1).all())


def asks_for_more(options: Mapping[str, Any]) -> bool:
    """Returns whether a call wants something besides the usual outputs, such as attention weights."""
    return any(value is not None and value is not False for name, value in options.items() if name not in NO_EFFECT)


class FeatureMaps(nn.Module):
    """The graph of a backbone: from pixels to its feature maps."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"map_{index}": one for index, one in enumerate(self.backbone(pixel_values).feature_maps)}


def exported(
    names: Sequence[str], write: Callable[[Path], object], size: tuple[int, int], key: object, engine: str
) -> list[Graph]:
    """Returns graphs from the cache, exported first if they are missing or damaged.

    Args:
        names: file names of the graphs, without suffix.
        write: writes them into a folder.
        size: height and width of images.
        key: what else they depend on, besides the versions of packages.
        engine: the engine.

    Raises:
        EngineError: they are damaged and cannot be replaced.
    """
    packages = ("hf-ngsan", "torch", "transformers", *FORMATS[engine].packages)
    parts = engine, size, key, [*map(version, packages)]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
    folder = Path(constants.HF_ASSETS_CACHE) / "hf_ngsan" / "engines" / digest
    files = [folder / f"{name}{FORMATS[engine].suffix}" for name in names]

    def loaded() -> list[Graph]:
        with turn_to_write(folder) as is_missing:
            if is_missing:
                logger.info("Exporting %s to %s, once, into %s.", " and ".join(names), engine, folder)
                write_folder_atomically(folder, write, manifest=False)
        return [load_graph(file, torch.get_num_threads()) for file in files]

    try:
        return loaded()
    except (UnexportableError, OSError):
        raise
    except Exception:  # runtimes say in many ways that a file is damaged
        shutil.rmtree(folder, ignore_errors=True)
    try:
        return loaded()
    except (UnexportableError, OSError):
        raise
    except Exception as error:
        raise EngineError(
            f"The exported graphs in {folder} are damaged and cannot be replaced ({one_sentence(error):.200}); delete "
            "that folder."
        ) from error
