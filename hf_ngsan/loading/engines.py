"""Models that ONNX Runtime runs on the CPU, in place of PyTorch.

Convolutional backbones, and the encoder and the steps of the decoder of a captioner, are exported on first use, for
images of the processor's height and width, into a cache that processes share (`HF_ASSETS_CACHE` of huggingface_hub), by
their weights and the versions of the packages. PyTorch stays in charge of everything else: images of other sizes,
gradients, hidden states, attention weights, the first word of captions.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from torch import nn
from transformers import modeling_outputs
from transformers.cache_utils import DynamicCache

from ..exporting import graphs
from ..exporting.captioner import Graph, load_graph
from ..io.folders import turn_to_write, write_folder_atomically
from ..io.messages import one_sentence
from ..models.captioning import CaptionCache, CaptioningForConditionalGeneration
from ..models.modeling_vision import VisionModel, in_parts, is_inference
from ..models.transformers_backbones import is_patch_encoder
from .provenance import backbone_settings, unusual_settings, weights_checksum

ENGINES = ("torch", "onnx", "auto")
TOLERANCE = 1e-4
"""Allowed difference of outputs, as a share of their largest value."""
USUAL = {
    *("visual_boxes", "attention_mask", "input_ids", "position_ids", "inputs_embeds", "cache"),
    *("encoder_hidden_states", "encoder_attention_mask", "return_dict", "use_cache", "pixel_values"),
}
"""Arguments of an encoder or decoder that a graph reads, or that change nothing."""
logger = logging.getLogger(__name__)


def use_engine(model: nn.Module, processor: Any, engine: str) -> None:
    """Lets an engine run the backbones and captioners of a model from now on, in inference.

    Args:
        model: a model with vision encoders, or one itself, in evaluation mode. Its weights must not change afterwards.
        processor: its processor or image processor.
        engine: `"torch"` changes nothing; `"onnx"` takes ONNX Runtime; `"auto"` takes it if it is installed and can run
            the model, else PyTorch.

    Raises:
        ValueError: there is no such engine, it is not installed, or it cannot run or trace this model.
    """
    if engine not in ENGINES:
        raise ValueError(f"There is no engine {engine!r}; choose one of {', '.join(ENGINES)}.")
    if engine == "torch":
        return
    try:
        run_parts(model, processor)
    except (ValueError, OSError) as error:
        if engine == "onnx":
            raise
        logger.info("PyTorch runs this model: %s", one_sentence(error))


def run_parts(model: nn.Module, processor: Any) -> None:
    graphs.check_exporter()
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
            f"--engine onnx runs a convolutional backbone in float32 on the CPU, for images of one height and width, "
            f"and this {type(model).__name__} is otherwise; leave the option out."
        )
    for captioner in model.modules():
        if isinstance(captioner, CaptioningForConditionalGeneration) and captioner.model.vision in visions:
            try:
                run_captioner(captioner, (height, width))
                logger.info("Encoder and decoder run in onnx.")
            except graphs.UnexportableError as error:
                logger.info("PyTorch runs encoder and decoder: %s", one_sentence(error))
    for vision in visions:
        run_backbone(vision.backbone, (height, width))
    logger.info("The vision encoder runs in onnx.")


def run_backbone(backbone: Any, size: tuple[int, int]) -> None:
    inputs, shapes = {"pixel_values": torch.zeros(2, 3, *size)}, {"pixel_values": {0: torch.export.Dim("images")}}

    def write(folder: Path) -> None:
        graphs.write_graph(FeatureMaps(backbone).eval(), inputs, shapes, folder / "vision.onnx")

    key = (backbone_settings(backbone.config), weights_checksum(backbone))
    (graph,) = exported(["vision"], write, size, key)
    backbone.forward = BackboneInEngine(backbone, graph, size)


def run_captioner(captioner: Any, size: tuple[int, int]) -> None:
    """Lets the engine run the encoder and a step of the decoder, or raises an UnexportableError."""
    config = captioner.config
    regions_vary = graphs.number_of_regions(config) is None
    if regions_vary and getattr(config, "grid_position_embedding", False):
        raise graphs.UnexportableError(
            "It takes grids of any size and places cells by their order, which is not exported."
        )

    def write(folder: Path) -> None:
        with graphs.eager_attention(captioner), torch.no_grad():
            pixels = {"pixel_values": torch.zeros(2, 3, *size)}
            seen = captioner.model.get_visual_tokens(**pixels)
            visual = {"visual_features": seen.visual_features}
            if config.reads_boxes:
                visual["visual_boxes"] = seen.visual_boxes.contiguous()
            for name, graph, inputs in (
                ("encoder", graphs.EncoderStatesGraph, visual),
                ("decoder", graphs.DecoderStatesGraph, graphs.decoder_inputs(captioner, pixels)),
            ):
                shapes = graphs.dynamic_shapes(inputs, regions_vary)
                graphs.write_graph(graph(captioner).eval(), inputs, shapes, folder / f"{name}.onnx")

    key = (config.model_type, unusual_settings(config), weights_checksum(captioner))
    encoder, decoder = exported(["encoder", "decoder"], write, size, key)
    model = captioner.model
    model.encoder.forward = EncoderInEngine(model.encoder, encoder, config)
    model.decoder.forward = DecoderInEngine(model.decoder, decoder)


def exported(names: Sequence[str], write: Callable[[Path], object], size: tuple[int, int], key: object) -> list[Graph]:
    """Returns graphs from the cache, written into a folder there first if those of this size and key are missing."""
    parts = "onnx", names, size, key, [*map(version, ("hf-ngsan", "torch", "transformers", *graphs.PACKAGES))]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
    folder = Path(constants.HF_ASSETS_CACHE) / "hf_ngsan" / "engines" / digest
    with turn_to_write(folder) as is_missing:
        if is_missing:
            logger.info("Exporting %s to onnx, once, into %s.", " and ".join(names), folder)
            write_folder_atomically(folder, write, manifest=False)
    return [load_graph(folder / f"{name}.onnx", torch.get_num_threads()) for name in names]


class FeatureMaps(nn.Module):
    """The graph of a backbone: from pixels to its feature maps."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"map_{index}": scale for index, scale in enumerate(self.backbone(pixel_values).feature_maps)}


class PartInEngine:
    """The forward pass of a part of a model, by an exported graph where it can and by PyTorch elsewhere.

    The first input is computed by both. If they differ, PyTorch computes all of them.
    """

    name: str

    def __init__(self, part: nn.Module, graph: Graph) -> None:
        self.in_torch: Callable[..., Any] = partial(type(part).forward, part)
        self.graph = graph
        self.agrees: bool | None = None

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        arrays = {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}
        return {name: torch.from_numpy(array) for name, array in self.graph(arrays).items()}

    def may_run(self, *inputs: torch.Tensor) -> bool:
        if self.agrees is False or not is_inference():
            return False
        return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in inputs)

    def compare(self, computed: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
        """Decides who runs from now on: the engine if its outputs are those of PyTorch."""
        differences = [
            (output - wanted).abs().max() / wanted.abs().max().clamp(min=1)
            for output, wanted in zip(computed, expected, strict=True)
        ]
        largest = float(torch.stack(differences).max())  # NaN if one of them is
        self.agrees = largest <= TOLERANCE
        if not self.agrees:
            logger.warning("The %s in onnx differs from PyTorch by %.1e; PyTorch runs it.", self.name, largest)
        return self.agrees


class BackboneInEngine(PartInEngine):
    name = "vision encoder"

    def __init__(self, part: nn.Module, graph: Graph, size: tuple[int, int]) -> None:
        super().__init__(part, graph)
        self.size = size

    def __call__(self, pixel_values: torch.Tensor, **options: Any) -> modeling_outputs.BackboneOutput:
        if options or tuple(pixel_values.shape[-2:]) != self.size or not self.may_run(pixel_values):
            return self.in_torch(pixel_values, **options)
        if self.agrees is None:
            first = pixel_values[:1]
            if not self.compare(self.maps(first), self.in_torch(first).feature_maps):
                return self.in_torch(pixel_values)
        parts = [self.maps(part) for part in in_parts(pixel_values)]
        joined: Any = tuple(torch.cat(maps) for maps in zip(*parts, strict=True))
        return modeling_outputs.BackboneOutput(feature_maps=joined)

    def maps(self, pixel_values: torch.Tensor) -> list[torch.Tensor]:
        return list(self.run({"pixel_values": pixel_values}).values())


class EncoderInEngine(PartInEngine):
    name = "encoder"

    def __init__(self, part: nn.Module, graph: Graph, config: Any) -> None:
        super().__init__(part, graph)
        self.config = config

    def __call__(  # generate() passes only what is named here
        self,
        visual_features: torch.Tensor,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> modeling_outputs.BaseModelOutput:
        given = {"visual_boxes": visual_boxes, "attention_mask": attention_mask, **options}
        inputs = {"visual_features": visual_features}
        if self.config.reads_boxes and visual_boxes is not None:
            inputs["visual_boxes"] = visual_boxes
        images, regions, size = visual_features.shape
        fits = (  # for inputs of other shapes PyTorch raises the error
            size == self.config.visual_feature_size
            and graphs.number_of_regions(self.config) in (None, regions)
            and (not self.config.reads_boxes or getattr(visual_boxes, "shape", None) == (images, regions, 4))
        )
        is_usual = is_all_real(attention_mask) and not asks_for_more(options)
        if not (fits and is_usual and self.may_run(*inputs.values())):
            return self.in_torch(visual_features, **given)
        hidden_states = self.run(inputs)["hidden_states"]
        if self.agrees is None:
            outputs = self.in_torch(visual_features, **given)
            self.compare([hidden_states], [outputs.last_hidden_state])
            return outputs
        return modeling_outputs.BaseModelOutput(last_hidden_state=hidden_states)


class DecoderInEngine(PartInEngine):
    """The decoder of a captioner, for one more word of each caption; PyTorch writes the first one."""

    name = "decoder"

    def __call__(self, **given: Any) -> Any:
        inputs = self.inputs_of(given) if self.may_run() else None
        if inputs is None:
            return self.in_torch(**given)
        cache: Any = given["cache"]
        outputs = self.run(inputs)
        hidden_states = outputs.pop("hidden_states").flatten(0, 1)[:, None]
        if self.agrees is None:
            expected = self.in_torch(**given)
            self.compare([hidden_states], [expected.last_hidden_state])
            return expected
        for index, layer in enumerate(cache.self_attention_cache.layers):
            layer.keys, layer.values = (outputs[f"{kind}_{index}"].flatten(0, 1) for kind in ("keys", "values"))
        return modeling_outputs.BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, cache=cache)

    def inputs_of(self, given: Mapping[str, Any]) -> dict[str, torch.Tensor] | None:
        """Returns the inputs of the graph, or None for arguments that are not those of a step without padding."""
        input_ids, position_ids, cache = (given.get(name) for name in ("input_ids", "position_ids", "cache"))
        states, masks = given.get("encoder_hidden_states"), ("attention_mask", "encoder_attention_mask")
        if not given.get("use_cache") or input_ids is None or input_ids.shape[1] != 1 or asks_for_more(given):
            return None
        if not isinstance(cache, CaptionCache) or not isinstance(cache.self_attention_cache, DynamicCache):
            return None
        if states is None or not all(is_all_real(given.get(name)) for name in masks):
            return None
        past, images = cache.get_seq_length(), len(states)
        if past == 0 or len(input_ids) % images or (position_ids is not None and bool((position_ids != past).any())):
            return None
        captions = images, len(input_ids) // images
        inputs = {"input_ids": input_ids.view(captions)}
        of_images: Any = cache.cross_attention_cache.layers
        of_words: Any = cache.self_attention_cache.layers
        for index, layer in enumerate(of_images):
            inputs |= {f"visual_keys_{index}": layer.keys, f"visual_values_{index}": layer.values}
        for index, layer in enumerate(of_words):
            inputs[f"past_keys_{index}"] = layer.keys.unflatten(0, captions)
            inputs[f"past_values_{index}"] = layer.values.unflatten(0, captions)
        return inputs


def is_all_real(mask: torch.Tensor | None) -> bool:
    return mask is None or bool((mask == 1).all())


def asks_for_more(given: Mapping[str, Any]) -> bool:
    """Returns whether a call wants something besides the usual outputs, such as attention weights."""
    return any(value is not None and value is not False for name, value in given.items() if name not in USUAL)
