"""Attention of a captioner to visual tokens and pixels for each predicted word, and visualness of words."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .modeling_mcan import MCANForVisualQuestionAnswering

NOT_FOR_THE_ENCODER = ("labels", "decoder_input_ids", "decoder_attention_mask")
EDGE_TOLERANCE = 1e-3
"""Tolerance for the edges of neighbouring cells, as a share of the image, because boxes may have half precision."""


def word_attention(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    inputs: Mapping[str, torch.Tensor],
    sequences: torch.Tensor,
    layer: int | None = None,
) -> list[tuple[list[str], np.ndarray]]:
    """Returns the cross-attention over visual tokens for every word of generated captions.

    One teacher-forced pass over the finished captions gives the same weights as the decoding steps of any search.

    Args:
        model: a captioner of this package, with encoder and decoder in `model.model`.
        tokenizer: the tokenizer of the model.
        inputs: outputs of the processor for B images; prefixes and labels are ignored.
        sequences (`torch.LongTensor` of shape `(B * C, length)`): result of `generate()`, start token included.
        layer: a decoder layer; `None` for the mean over all layers. The weights are always averaged over heads.

    Returns:
        For each sequence its T words, without special tokens, and float32 weights `(T, N)` over the real visual
        tokens of its image; each row sums to 1.
    """
    visual: Any = {name: value for name, value in inputs.items() if name not in NOT_FOR_THE_ENCODER}
    sequences = sequences.to(model.device)
    with evaluation_mode(model), torch.inference_mode():
        if visual.get("pixel_values") is not None:
            visual = model.model.get_visual_tokens(**visual)
        outputs = model(
            encoder_outputs=model.model.encoder(**visual),
            attention_mask=visual.get("attention_mask"),
            decoder_input_ids=sequences[:, :-1],
            decoder_attention_mask=(sequences[:, :-1] != tokenizer.pad_token_id).long(),
            output_attentions=True,
            use_cache=False,
            attn_implementation="eager",
        )
    num_regions = outputs.encoder_last_hidden_state.shape[1]
    layers = [among_regions(weights, num_regions) for weights in outputs.cross_attentions]
    weights = mean_over_heads(layers, layer).cpu().numpy()

    mask, silent, captions = visual.get("attention_mask"), set(tokenizer.all_special_ids), []
    masks = np.ones((len(weights), num_regions), dtype=bool) if mask is None else mask.bool().cpu().numpy()
    for index, (ids, word_weights) in enumerate(zip(sequences[:, 1:].tolist(), weights, strict=True)):
        positions = [position for position, token in enumerate(ids) if token not in silent]
        words = [str(tokenizer.convert_ids_to_tokens(ids[position])) for position in positions]
        captions.append((words, word_weights[positions][:, masks[index * len(masks) // len(weights)]]))
    return captions


def word_visualness_pairs(
    model: Any, tokenizer: PreTrainedTokenizerBase, inputs: Mapping[str, torch.Tensor], sequences: torch.Tensor
) -> list[list[tuple[str, float]]]:
    """Returns the words of each sequence, without special tokens, with their visualness (see `word_visualness`)."""
    if not getattr(model.config, "adaptive_attention", False):
        raise ValueError(f"This {model.config.model_type} model has no visualness, which needs adaptive_attention.")
    silent, captions = set(tokenizer.all_special_ids), []
    for ids, values in zip(sequences.tolist(), model.word_visualness(inputs, sequences).tolist(), strict=True):
        pairs = zip(map(str, tokenizer.convert_ids_to_tokens(ids)), ids, values, strict=True)
        captions.append([(word, value) for word, token, value in pairs if token not in silent])
    return captions


def mean_over_heads(layers: Sequence[torch.Tensor], layer: int | None) -> torch.Tensor:
    """Returns the mean `(captions, words, regions)` over the heads of one layer, or of all layers for `None`."""
    return (torch.stack([*layers]).mean(0) if layer is None else layers[layer]).mean(1)


def among_regions(weights: torch.Tensor, num_regions: int) -> torch.Tensor:
    """Returns the weights `(..., num_regions)` of visual tokens, without the weight of RSTNet's language signal."""
    weights = weights.float()
    if weights.shape[-1] == num_regions:
        return weights
    visual = weights[..., :num_regions]
    return visual / visual.sum(-1, keepdim=True)


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Keeps a model in evaluation mode inside the `with` block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def attention_maps(weights: np.ndarray, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Turns weights `(T, N)` of visual tokens with boxes `(N, 4)` into maps of the image, float32 `(T, height, width)`.

    If the boxes are the cells of a grid, row by row, the weights are interpolated bilinearly between the centres of the
    cells. Otherwise, the value of a pixel is the sum of the weights of the regions that contain it.
    """
    weights, boxes = np.asarray(weights, dtype=np.float32), np.asarray(boxes, dtype=np.float32)
    if boxes.shape != (weights.shape[-1], 4):
        raise ValueError(f"boxes has the shape {boxes.shape}; for these weights it must be {(weights.shape[-1], 4)}.")
    grid = grid_edges(boxes)
    if grid is None:
        return painted(weights, boxes, width, height)
    down, across = (between_centres(edges, pixels) for edges, pixels in zip(grid, (height, width), strict=True))
    cells = weights.reshape(len(weights), len(down), len(across))
    return np.einsum("trc,ry,cx->tyx", cells, down, across, optimize=True)


def grid_edges(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the edges of rows `(rows, 2)` and columns `(columns, 2)` if boxes form a grid over the image."""
    num_columns = int((np.abs(boxes[:, 1] - boxes[0, 1]) <= EDGE_TOLERANCE).sum())
    if len(boxes) % num_columns:
        return None
    cells = boxes.reshape(-1, num_columns, 4)
    rows, columns = cells[:, 0, 1::2], cells[0, :, 0::2]
    is_grid = np.abs(cells[..., 1::2] - rows[:, None]).max() <= EDGE_TOLERANCE
    is_grid &= np.abs(cells[..., 0::2] - columns[None]).max() <= EDGE_TOLERANCE
    for edges in (rows, columns):
        ends = np.concatenate([[0], edges[:, 1]])
        starts = np.concatenate([edges[:, 0], [1]])
        is_grid &= np.abs(ends - starts).max() <= EDGE_TOLERANCE
    return (rows, columns) if is_grid else None


def between_centres(edges: np.ndarray, pixels: int) -> np.ndarray:
    """Returns the share `(cells, pixels)` of each cell in each pixel: linear between centres, constant outside them."""
    at = (np.arange(pixels) + 0.5) / pixels
    return np.stack([np.interp(at, edges.mean(1), share) for share in np.eye(len(edges))]).astype(np.float32)


def painted(weights: np.ndarray, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Sums the weights of the regions that contain each pixel."""
    maps = np.zeros((len(weights), height, width), dtype=np.float32)
    size = np.array([width, height])
    for box, box_weights in zip(boxes.astype(np.float64), weights.T, strict=True):
        left, top = np.minimum(np.floor(box[:2] * size + EDGE_TOLERANCE), size - 1).astype(int)
        right, bottom = np.ceil(box[2:] * size - EDGE_TOLERANCE).astype(int)
        maps[:, top : max(bottom, top + 1), left : max(right, left + 1)] += box_weights[:, None, None]
    return maps


def question_attention(
    model: MCANForVisualQuestionAnswering,
    tokenizer: PreTrainedTokenizerBase,
    inputs: Mapping[str, torch.Tensor],
    layer: int | None = None,
) -> list[tuple[list[str], np.ndarray, np.ndarray]]:
    """Returns the distribution of each word of a question over the regions of its image; see [`word_attention`].

    In guided attention each region attends to the words. The weights of one word in all regions, divided by their sum,
    show which regions attend to it.

    Returns:
        For each question its T words, float32 weights `(T, N)` over the N real regions, whose rows sum to 1, and the
        weights `(N,)` of the regions in the answer: the mean over the glimpses of the reduction of the image.
    """
    with evaluation_mode(model), torch.inference_mode():
        outputs: Any = model(**inputs, output_attentions=True, return_dict=True, attn_implementation="eager")
    guided = [weights.float() for weights in outputs.cross_attentions]
    weights = mean_over_heads(guided, layer).mT.cpu().numpy()
    glimpses = outputs.image_glimpses.float().mean(1).cpu().numpy()
    words = inputs["attention_mask"].bool().cpu().numpy()
    mask = inputs.get("visual_attention_mask")
    regions = np.ones(glimpses.shape, dtype=bool) if mask is None else mask.bool().cpu().numpy()
    return [
        (
            [str(tokenizer.convert_ids_to_tokens(word)) for word in ids[is_word].tolist()],
            shares(word_weights[is_word][:, is_region]),
            shares(image_weights[is_region]),
        )
        for ids, is_word, word_weights, image_weights, is_region in zip(
            inputs["input_ids"].cpu().numpy(), words, weights, glimpses, regions, strict=True
        )
    ]


def shares(weights: np.ndarray) -> np.ndarray:
    """Divides non-negative weights by their sum over the last axis."""
    return weights / np.maximum(weights.sum(-1, keepdims=True), np.finfo(np.float32).tiny)
