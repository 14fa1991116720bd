"""Dual encoders, of this package and of transformers, as two ONNX graphs."""

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.export import Dim
from transformers import PreTrainedModel

from ..guests.dual_encoders import EXPORTED_SETTINGS, DualEncoder, ExportedDualEncoder, ExportedModel, dual_encoder_of
from ..io.files import write_text_atomically
from ..io.weight_sources import complete_sources, write_licence
from .graphs import UnexportableError, eager_attention, write_graph

TOLERANCE = 1e-4
"""Largest difference of an embedding's numbers between graph and model."""
MAX_LENGTH = 4096
MAX_FIXED_LENGTH = 64
"""Tokens of a text where every text is padded to the longest."""
TEXTS = ("a photograph of a dog", "two")
MORE_TEXTS = ("a", "a man and a woman are standing in front of a building", "it")


class Tower(nn.Module):
    """One side of a dual encoder: from its inputs to its features."""

    def __init__(self, model: Any, features: str) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = getattr(self.model, self.features)(**inputs)
        return {"features": getattr(outputs, "pooler_output", outputs)}


def write_exported_dual_encoder(model: PreTrainedModel, processor: Any, folder: Path) -> float:
    """Exports a dual encoder, and compares the graphs with it.

    Texts may have any length that the model takes; a text encoder that runs word by word, such as MHSAN's, gets texts
    that are padded to the longest one.

    Args:
        model: a dual encoder that reads images, in float32 on the CPU, in evaluation mode.
        processor: the model's.
        folder: an empty one.

    Returns:
        The largest difference of the embeddings of other images and texts, at most 1e-4.

    Raises:
        UnexportableError: it reads no images, cannot be traced, or its graphs compute something else.
    """
    encoder = dual_encoder_of(model, processor)
    if encoder.image_processor is None:
        raise UnexportableError("This dual encoder has no vision encoder, so it cannot embed the images of an index.")
    images = taken(model.get_image_features, encoder.image_inputs(pictures(2)))
    shapes = {name: {0: Dim("images")} for name in images}
    with eager_attention(model), torch.no_grad():
        write_graph(Tower(model, "get_image_features").eval(), images, shapes, folder / "image.onnx")
        fixed_length = write_text_graph(encoder, folder)
    longest = min(encoder.longest_text, MAX_FIXED_LENGTH if fixed_length else MAX_LENGTH)
    settings = {"dimension": encoder.dimension, "longest_text": longest, "fixed_length": fixed_length}
    write_text_atomically(folder / EXPORTED_SETTINGS, json.dumps(settings) + "\n")
    complete_sources(model)
    model.config.save_pretrained(folder)
    write_licence(model, folder)
    processor.save_pretrained(folder)
    graphs: Any = ExportedModel(folder, model.config)
    exported = ExportedDualEncoder(graphs, processor)
    difference = largest_difference(encoder, exported)
    if not difference <= TOLERANCE:
        raise UnexportableError(
            f"The graphs differ from the model by {difference:.1e}, and {TOLERANCE:.0e} is allowed."
        )
    return difference


def write_text_graph(encoder: DualEncoder, folder: Path) -> bool:
    """Writes the graph of texts; returns whether it takes texts of one length only."""
    model, longest = encoder.model, min(encoder.longest_text, MAX_LENGTH)
    graph = Tower(model, "get_text_features").eval()
    texts = taken(model.get_text_features, encoder.text_inputs(TEXTS))
    varying = {0: Dim("texts"), 1: Dim("length", min=2, max=longest)}
    if encoder.padding == "longest":
        try:
            write_graph(graph, texts, dict.fromkeys(texts, varying), folder / "text.onnx")
            return False
        except UnexportableError:  # its steps depend on the length
            pass
    tokenizer, longest = encoder.processor.tokenizer, min(longest, MAX_FIXED_LENGTH)
    padded = tokenizer(list(TEXTS), padding="max_length", truncation=True, max_length=longest, return_tensors="pt")
    texts = taken(model.get_text_features, padded)
    write_graph(graph, texts, {name: {0: Dim("texts")} for name in texts}, folder / "text.onnx")
    return True


def taken(features_of: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns those inputs that a method has a parameter for."""
    return {name: value for name, value in inputs.items() if name in signature(features_of).parameters}


def pictures(number: int) -> list[Image.Image]:
    random = np.random.RandomState(number)
    return [Image.fromarray(random.randint(0, 256, (48, 64, 3)).astype(np.uint8)) for _ in range(number)]


@torch.no_grad()
def largest_difference(first: DualEncoder, second: DualEncoder) -> float:
    images = [encoder.embed_images(encoder.image_inputs(pictures(3))) for encoder in (first, second)]
    texts = [encoder.embed_texts(encoder.text_inputs(MORE_TEXTS)) for encoder in (first, second)]
    return float(torch.stack([(own - other).abs().max() for own, other in (images, texts)]).max())  # keeps NaN
