"""Graphs of ONNX, written by transformers' exporter: the encoder and one step of the decoder of a captioner."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.utils import logging as transformers_logging

from ..io.messages import one_sentence

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
SAMPLES = {"images": 2, "captions": 3, "regions": 5, "words": 4}
"""Sizes of traced inputs; all differ, so that the tracer cannot confuse two dimensions."""


class CaptionerGraph(nn.Module):
    """A part of what a captioner computes."""

    def __init__(self, captioner: Any):
        super().__init__()
        self.captioner = captioner


class EncoderGraph(CaptionerGraph):
    """Turns features, boxes and mask, or pixels, into `visual_keys_i`, `visual_values_i` `(B, heads, N, head_dim)`."""

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        model = self.captioner.model
        visual: dict[str, Any] = inputs
        if "pixel_values" in inputs:
            seen = model.get_visual_tokens(**inputs)
            visual = {"visual_features": seen.visual_features, "visual_boxes": seen.visual_boxes}
        states = model.encoder(**visual).last_hidden_state
        start_token = self.captioner.config.decoder_start_token_id
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # The exported graph keeps only what the keys and values of the images need.
        model.decoder(
            input_ids=torch.full((states.shape[0], 1), start_token, device=states.device),
            encoder_hidden_states=states,
            encoder_attention_mask=visual.get("attention_mask"),
            cache=cache,
            use_cache=True,
        )
        return named("visual_", cache.cross_attention_cache)


class EncoderStatesGraph(CaptionerGraph):
    """Turns features `(B, N, D)`, and boxes `(B, N, 4)` if the encoder reads them, into `hidden_states` `(B, N, H)`."""

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"hidden_states": self.captioner.model.encoder(**inputs).last_hidden_state}


class DecoderStatesGraph(CaptionerGraph):
    """One step of the decoder, for the last tokens `(B, C)` of C captions of each of B images.

    Beside what the encoder returns, it takes `past_keys_i`, `past_values_i` `(B, C, heads, T, head_dim)` of T tokens
    before. It returns `hidden_states` `(B, C, H)` and `keys_i`, `values_i` of T + 1 tokens.
    """

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **states: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for name, tensors in states.items():
            kind, _, layer = name.rpartition("_")
            if kind == "past_keys":
                values = states[f"past_values_{layer}"]
                cache.self_attention_cache.update(tensors.flatten(0, 1), values.flatten(0, 1), int(layer))
            elif kind == "visual_keys":
                cache.cross_attention_cache.update(tensors, states[f"visual_values_{layer}"], int(layer))
                cache.is_updated[int(layer)] = True
        keys, past = states["visual_keys_0"], cache.get_seq_length()
        # The decoder still needs the number of visual tokens.
        tokens = keys.new_zeros(1).expand(keys.shape[0], keys.shape[2], self.captioner.config.hidden_size)
        hidden_states = self.captioner.model.decoder(
            input_ids=input_ids.flatten()[:, None],
            encoder_hidden_states=tokens,
            encoder_attention_mask=attention_mask,
            cache=cache,
            use_cache=True,
        ).last_hidden_state
        if cache.get_seq_length() != past + 1:
            raise ValueError("The decoder ignores its cache, so a graph of one step would have no words before.")
        outputs = {"hidden_states": hidden_states[:, -1], **named("", cache.self_attention_cache)}
        return {name: tensor.unflatten(0, input_ids.shape) for name, tensor in outputs.items()}


class DecoderGraph(DecoderStatesGraph):
    """The same with `log_probabilities` `(B, C, vocab_size)` of the next token, float32, for the hidden states."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **states: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        outputs = super().forward(input_ids, attention_mask, **states)
        scores = self.captioner.lm_head(outputs.pop("hidden_states").flatten(0, 1)).float().log_softmax(-1)
        return {"log_probabilities": scores.unflatten(0, input_ids.shape), **outputs}


def named(prefix: str, cache: Any) -> dict[str, torch.Tensor]:
    states: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(cache.layers):
        states |= {f"{prefix}keys_{index}": layer.keys, f"{prefix}values_{index}": layer.values}
    return states


def encoder_inputs(captioner: PreTrainedModel, image_size: tuple[int, int] | None) -> dict[str, torch.Tensor]:
    """Returns inputs to trace: pixels of a height and width, or features."""
    config: Any = captioner.config
    if image_size is not None:
        return {"pixel_values": torch.zeros(SAMPLES["images"], 3, *image_size)}
    shape = (SAMPLES["images"], number_of_regions(config) or SAMPLES["regions"])
    inputs = {"visual_features": torch.zeros(*shape, config.visual_feature_size)}
    if config.reads_boxes:
        inputs["visual_boxes"] = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(*shape, 4).clone()
    return {**inputs, "attention_mask": torch.ones(shape, dtype=torch.long)}


def number_of_regions(config: Any) -> int | None:
    """Returns the number of cells of a grid."""
    grid = getattr(config, "grid_size", None)
    return None if grid is None else grid[0] * grid[1]


@torch.no_grad()
def decoder_inputs(captioner: PreTrainedModel, encoder_inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    visual = EncoderGraph(captioner)(**encoder_inputs)
    config: Any = captioner.config
    tokens = torch.full((SAMPLES["images"], SAMPLES["captions"]), config.decoder_start_token_id)
    mask = {"attention_mask": encoder_inputs["attention_mask"]} if "attention_mask" in encoder_inputs else {}
    first = DecoderGraph(captioner)(tokens, **mask, **visual)
    del first["log_probabilities"]
    past = {f"past_{name}": states.repeat(1, 1, 1, SAMPLES["words"], 1) for name, states in first.items()}
    return {"input_ids": tokens, **mask, **visual, **past}


def dynamic_shapes(inputs: Mapping[str, torch.Tensor], regions_vary: bool) -> dict[str, dict[int, Dim]]:
    images, captions, regions, words = Dim("images"), Dim("captions"), Dim("regions"), Dim("words")
    of_words = {"input": {1: captions}, "past": {1: captions, 3: words}}
    shapes: dict[str, dict[int, Dim]] = {}
    for name in inputs:
        of_regions = {2: regions} if name.startswith(("visual_keys", "visual_values")) else {1: regions}
        of_input = of_words.get(name.partition("_")[0], of_regions if regions_vary else {})
        shapes[name] = {0: images, **({} if name == "pixel_values" else of_input)}
    return shapes


@contextlib.contextmanager
def eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Sets eager attention inside the `with` block: plain operations, which ONNX Runtime has."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


class UnexportableError(ValueError):
    """A model that cannot be exported; the message has the reason."""


def check_exporter() -> None:
    """Raises a ValueError unless the packages that write and run graphs are installed."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ValueError(f'Export to onnx needs {" and ".join(missing)}; pip install "hf-ngsan[export]".')


def write_graph(
    graph: nn.Module, inputs: Mapping[str, torch.Tensor], shapes: Mapping[str, Mapping], path: Path
) -> None:
    """Traces and writes a graph, from tensors by name to tensors by name; its weights may be beside the file."""
    with quiet():
        exporters: Any = import_module("transformers.exporters")
        exporter, config = exporters.OnnxExporter(), exporters.OnnxConfig(dynamic_shapes=dict(shapes))
        try:
            program, _ = exporter.export_program(graph, dict(inputs), config)
            if hasattr(program, "graph"):  # the source lines of operations name folders of this machine
                for node in program.graph.all_nodes():
                    node.metadata_props.clear()
            exporter.save_program(program, path)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # exporters fail in many ways on what they cannot trace
            raise UnexportableError(
                f"The {path.stem} of this model cannot be exported to onnx ({one_sentence(error)})."
            ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences progress and version warnings of exporters inside the `with` block."""
    verbosity, level = transformers_logging.get_verbosity(), logging.root.manager.disable
    transformers_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        transformers_logging.set_verbosity(verbosity)
