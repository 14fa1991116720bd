"""Attention heads of a dual encoder: attention maps, and shares in the similarity of image and text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .figures import COLUMNS, INK, new_figure, panel_rows, show_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from PIL.Image import Image


@dataclass(frozen=True)
class Match:
    """The similarity of an image and a text, by head.

    An embedding is the normalized sum of a term for each head and one for the bias. The similarity is therefore the sum
    of the inner products of all pairs of terms.

    Attributes:
        similarity: the cosine similarity of the two embeddings.
        shares: float32 `(image_heads + 1, text_heads + 1)`, these inner products, with the biases last; their sum is
            the similarity. A side without heads has one term, its embedding, and no bias.
        words: the T tokens of the text.
        image_weights: float32 `(image_heads, N)`, the attention of each head to the N cells or regions; rows sum to 1.
        text_weights: float32 `(text_heads, T)`, the same over the tokens.
        boxes: float32 `(N, 4)` of the cells or regions, if known.
    """

    similarity: float
    shares: np.ndarray
    words: list[str]
    image_weights: np.ndarray
    text_weights: np.ndarray
    boxes: np.ndarray | None


def explain_match(model: Any, tokenizer: Any, inputs: Mapping[str, Any]) -> Match:
    """Returns the share of each head of a dual encoder in the similarity of an image and a text.

    Args:
        model: a dual encoder of this package, in evaluation mode.
        tokenizer: tokenizer of the model.
        inputs: the processor's output for one image (or its features) and one text.
    """
    import torch

    real = inputs["attention_mask"]
    with torch.inference_mode():
        outputs = model(**inputs)
        if outputs.logits_per_image.numel() != 1:
            raise ValueError(f"{tuple(outputs.logits_per_image.shape)} images and texts were given; give one of each.")
        image, text = outputs.vision_model_output, outputs.text_model_output
        image_weights = head_weights(image.attentions, model.config.num_image_heads, image.attention_mask)
        text_weights = head_weights(text.attentions, model.config.num_text_heads, real)
        image_terms = terms(image, image_weights, model.image_projection, image.attention_mask)
        text_terms = terms(text, text_weights, model.text_projection, real)
        boxes = None if image.visual_boxes is None else kept(image.visual_boxes[0], image.attention_mask)
        return Match(
            similarity=float(outputs.image_embeds[0] @ outputs.text_embeds[0]),
            shares=(image_terms @ text_terms.mT).float().cpu().numpy(),
            words=[str(word) for word in tokenizer.convert_ids_to_tokens(kept(inputs["input_ids"][0], real).tolist())],
            image_weights=image_weights.float().cpu().numpy(),
            text_weights=text_weights.float().cpu().numpy(),
            boxes=None if boxes is None else boxes.float().cpu().numpy(),
        )


def explain_match_of_guest(encoder: Any, image: Any, text: str) -> Match:
    """Returns the share of each head in the last layers of a transformers dual encoder in a similarity.

    The share of a head is the first-order loss of similarity S if the head attended to nothing: the sum of A * dS/dA
    over its map A. The rest of the similarity counts as the bias. The attention of a head is the positive part of
    A * dS/dA, summed over queries (as in Chefer et al. 2021), over patches and words.

    Args:
        encoder: its description, see [`~hf_ngsan.guests.dual_encoders.DualEncoder`]; its model is switched to "eager"
            attention.
        image: any image that [`~hf_ngsan.models.image_processing_captioning.load_image`] reads.
        text: the text to compare the image with.
    """
    import torch

    model = encoder.model
    model.set_attn_implementation("eager")
    image_inputs, text_inputs = encoder.image_inputs([image]), encoder.text_inputs([text])
    inputs = {name: encoder.placed(value) for name, value in {**image_inputs, **text_inputs}.items()}
    with torch.enable_grad():
        outputs = model(**inputs, output_attentions=True)
        sides = [getattr(outputs, name, None) for name in ("vision_model_output", "text_model_output")]
        maps = [(getattr(side, "attentions", None) or [None])[-1] for side in sides]
        if any(side is None for side in maps):
            raise ValueError(f"A {model.config.model_type} model has no attention maps for both images and texts.")
        similarity = (outputs.image_embeds[0] * outputs.text_embeds[0]).sum()
        gradients = torch.autograd.grad(similarity, maps)
    shares, weights = [], []
    for attention, gradient in zip(maps, gradients, strict=True):
        part = (attention * gradient)[0].detach().float().cpu()
        head_parts = part.sum((1, 2))
        shares.append(torch.cat([head_parts, similarity.detach().cpu() - head_parts.sum(0, keepdim=True)]))
        weights.append(part.clamp(min=0).sum(1))
    real, patch = text_inputs["attention_mask"], model.config.vision_config.patch_size
    if "spatial_shapes" in image_inputs:
        rows, columns = image_inputs["spatial_shapes"][0].tolist()
        image_maps = weights[0][:, : rows * columns]
    else:
        rows, columns = (side // patch for side in image_inputs["pixel_values"].shape[-2:])
        image_maps = weights[0][:, -rows * columns :]
    text_maps = kept(weights[1].mT, real).mT
    total = similarity.item()
    return Match(
        similarity=total,
        shares=(shares[0][:, None] * shares[1] / (total or 1.0)).numpy(),
        words=encoder.processor.tokenizer.convert_ids_to_tokens(kept(text_inputs["input_ids"][0], real).tolist()),
        image_weights=summing_to_one(image_maps.numpy()),
        text_weights=summing_to_one(text_maps.numpy()),
        boxes=encoder.cell_boxes(rows, columns).numpy(),
    )


def summing_to_one(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, 1 / weights.shape[-1]), where=total > 0)


def kept(values: Any, mask: Any) -> Any:
    """Returns the positions `(positions, ...)` that are not padding."""
    return values if mask is None else values[mask[0].bool()]


def head_weights(attentions: Any, num_heads: int, mask: Any) -> Any:
    """Returns the attention maps of the heads of a single row over its real positions, `(num_heads, positions)`."""
    import torch

    return kept(attentions[-1][0].mT, mask).mT if num_heads else torch.zeros(0, 0)


def terms(outputs: Any, weights: Any, projection: Any, mask: Any) -> Any:
    """Returns the terms of an embedding, `(heads + 1, dimension)`, or the embedding itself if there are no heads."""
    import torch

    if not len(weights):
        return outputs.pooler_output
    heads = weights @ kept(outputs.last_hidden_state[0], mask)
    head_projection = projection.weight.unflatten(1, heads.shape)
    parts = torch.cat([torch.einsum("ohd,hd->ho", head_projection, heads), projection.bias[None]])
    return parts / parts.sum(0).norm()


def plot_match(image: Image | np.ndarray, maps: ArrayLike, match: Match) -> Figure:
    """Draws the map of each head over the image and over the words, with its share (figures 2-5 of Park et al. 2020).

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        maps: maps of the image's heads, `(image_heads, height, width)`, from
            [`~hf_ngsan.models.attention_maps.attention_maps`].
        match: match of this image and a text.
    """
    maps = np.asarray(maps, dtype=np.float32)
    height, width = np.asarray(image).shape[:2]
    columns = max(1, min(COLUMNS + 1, len(maps)))
    heights = {}
    if len(maps):
        heights["image"] = (1.9 * height / width + 0.3) * math.ceil(len(maps) / columns)
    if len(match.text_weights):
        heights["text"] = 0.6 + 0.26 * len(match.text_weights)
    figure = new_figure(max(1.9 * columns, 0.5 * len(match.words) + 2), sum(heights.values()) + 0.4)
    figure.suptitle(f"similarity {match.similarity:.3f}", fontsize=11, color=INK)
    rows = figure.subfigures(len(heights), 1, height_ratios=[*heights.values()], squeeze=False)[:, 0]
    parts = dict(zip(heights, rows, strict=True))
    if "image" in parts:
        panels = panel_rows(parts["image"], len(maps), columns)
        for panel, title, weights in zip(panels, titles_of(match.shares.sum(1)), maps, strict=True):
            show_map(panel, image, weights)
            panel.set_title(title, fontsize=9, color=INK)
    if "text" in parts:
        panel = parts["text"].subplots()
        panel.imshow(match.text_weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(match.words)), match.words, rotation=40, ha="right", fontsize=8, parse_math=False)
        panel.set_yticks(range(len(match.text_weights)), titles_of(match.shares.sum(0)), fontsize=8)
    return figure


def titles_of(shares: np.ndarray) -> list[str]:
    """Returns the name of each head with its share; the last share belongs to the biases."""
    return [f"head {number}: {share:+.3f}" for number, share in enumerate(shares[:-1], 1)]
