"""ONNX graphs, written by transformers' exporter: the encoder and one decoder step of a captioner."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from ..io.messages import one_sentence

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
IMAGES, CAPTIONS, REGIONS, WORDS = 2, 3, 5, 4
"""Sizes of traced inputs; all are different, so that the tracer cannot confuse dimensions."""
Function = Callable[..., dict[str, torch.Tensor]]


def encode(captioner: Any, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Turns features, boxes and mask, or pixels, into `visual_keys_i`, `visual_values_i` `(B, heads, N, head_dim)`.

    For pixels, it also returns the visual `features` `(B, N, feature_size)` and the `boxes` `(B, N, 4)`.
    """
    visual: dict[str, Any] = inputs
    outputs = {}
    if "pixel_values" in inputs:
        tokens = captioner.model.get_visual_tokens(**inputs)
        visual = {"visual_features": tokens.visual_features, "visual_boxes": tokens.visual_boxes}
        outputs = {"features": tokens.visual_features, "boxes": tokens.visual_boxes}
    states = captioner.model.encoder(**visual).last_hidden_state
    start_token = captioner.config.decoder_start_token_id
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    # The exported graph keeps only the operations for the keys and values of the images.
    captioner.model.decoder(
        input_ids=torch.full((states.shape[0], 1), start_token, device=states.device),
        encoder_hidden_states=states,
        encoder_attention_mask=visual.get("attention_mask"),
        cache=cache,
        use_cache=True,
    )
    return named("visual_", cache.cross_attention_cache) | outputs


def decode(
    captioner: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **states: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Decodes one step, for the last tokens `(B, C)` of C captions of each of B images.

    In addition to the outputs of the encoder, the inputs are `past_keys_i`, `past_values_i` `(B, C, heads, T,
    head_dim)` of T previous tokens. Returns float32 `log_probabilities` `(B, C, vocab_size)`, and `keys_i`, `values_i`
    of T + 1 tokens.
    """
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
    tokens = keys.new_zeros(1).expand(keys.shape[0], keys.shape[2], captioner.config.hidden_size)
    hidden_states = captioner.model.decoder(
        input_ids=input_ids.flatten()[:, None],
        encoder_hidden_states=tokens,
        encoder_attention_mask=attention_mask,
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    if cache.get_seq_length() != past + 1:
        raise ValueError("The decoder ignores its cache, so a graph of one step would not see previous words.")
    scores = captioner.lm_head(hidden_states[:, -1]).float().log_softmax(-1)
    outputs = {"log_probabilities": scores, **named("", cache.self_attention_cache)}
    return {name: tensor.unflatten(0, input_ids.shape) for name, tensor in outputs.items()}


def named(prefix: str, cache: Any) -> dict[str, torch.Tensor]:
    states: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(cache.layers):
        states |= {f"{prefix}keys_{index}": layer.keys, f"{prefix}values_{index}": layer.values}
    return states


def encoder_inputs(captioner: PreTrainedModel, image_size: tuple[int, int] | None) -> dict[str, torch.Tensor]:
    """Returns inputs for tracing [`encode`]: pixels of `image_size`, or features."""
    config: Any = captioner.config
    if image_size is not None:
        return {"pixel_values": torch.zeros(IMAGES, 3, *image_size)}
    grid = getattr(config, "grid_size", None)
    if grid is None and getattr(config, "grid_position_embedding", False):
        raise UnexportableError("An RSTNet for grids of any size cannot be exported; set grid_size in its config.")
    shape = (IMAGES, REGIONS if grid is None else grid[0] * grid[1])
    inputs = {"visual_features": torch.zeros(*shape, config.visual_feature_size)}
    if config.reads_boxes:
        inputs["visual_boxes"] = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(*shape, 4).clone()
    return {**inputs, "attention_mask": torch.ones(shape, dtype=torch.long)}


@torch.no_grad()
def decoder_inputs(captioner: PreTrainedModel, encoder_inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns inputs for tracing [`decode`]."""
    config: Any = captioner.config
    inputs = {"input_ids": torch.full((IMAGES, CAPTIONS), config.decoder_start_token_id)}
    encoded = encode(captioner, **encoder_inputs)
    inputs |= {name: states for name, states in encoded.items() if name.startswith("visual_")}
    if "attention_mask" in encoder_inputs:
        inputs["attention_mask"] = encoder_inputs["attention_mask"]
    first = decode(captioner, **inputs)
    del first["log_probabilities"]
    return inputs | {f"past_{name}": states.repeat(1, 1, 1, WORDS, 1) for name, states in first.items()}


class UnexportableError(ValueError):
    """A model that cannot be exported; the message has the reason."""


def check_exporter() -> None:
    """Raises a ValueError unless the packages for writing and running graphs are installed."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ValueError(f'Export to onnx needs {" and ".join(missing)}; pip install "hf-ngsan[export]".')


class Traced(nn.Module):
    """Wraps a function of a model, from tensors by name to tensors by name, as a module."""

    def __init__(self, model: PreTrainedModel, function: Function) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.function(self.model, **inputs)


def write_graph(
    model: PreTrainedModel,
    function: Function,
    inputs: Mapping[str, torch.Tensor],
    path: Path,
    varying: Mapping[int, Any] | None = None,
) -> None:
    """Traces and writes a function of a model; its weights may be in a separate file.

    `varying` are the variable dimensions of all inputs; by default, the number of images and all other dimensions that
    the model supports, except the size of pixels.
    """
    shapes = {}
    for name, tensor in inputs.items():
        others = range(1, 1 if name == "pixel_values" else tensor.ndim)
        shapes[name] = varying or {0: Dim.DYNAMIC, **dict.fromkeys(others, Dim.AUTO)}
    exporters: Any = import_module("transformers.exporters")
    with eager_and_quiet(model):
        try:
            config = exporters.OnnxConfig(dynamic_shapes=shapes)
            program, _ = exporters.OnnxExporter().export_program(Traced(model, function).eval(), dict(inputs), config)
        except Exception as error:  # exporters raise many types of errors
            raise UnexportableError(
                f"The {path.stem} of this model cannot be exported to onnx ({one_sentence(error)})."
            ) from error
        for node in program.graph.all_nodes():  # the source lines of operations have folder names of this machine
            node.metadata_props.clear()
        exporters.OnnxExporter.save_program(program, path)


@contextlib.contextmanager
def eager_and_quiet(model: PreTrainedModel) -> Iterator[None]:
    """Uses eager attention, which ONNX Runtime supports, and silences progress and version warnings."""
    attention, level = model.config._attn_implementation, logging.root.manager.disable
    model.set_attn_implementation("eager")
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
        model.set_attn_implementation(attention)
