"""Attention between the words of a question and the regions of an image, for an answer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .attention_maps import evaluation_mode, mean_over_heads
from .modeling_mcan import MCANForVisualQuestionAnswering


def question_attention(
    model: MCANForVisualQuestionAnswering,
    tokenizer: PreTrainedTokenizerBase,
    inputs: Mapping[str, torch.Tensor],
    layer: int | None = None,
) -> list[tuple[list[str], np.ndarray, np.ndarray]]:
    """Returns the distribution of each word of a question over the regions of its image.

    In guided attention each region has weights of the words. The weights of a word from all regions, divided by
    their sum, show to which regions it matters. Other threads may call the model at the same time.

    Args:
        model: whose guided attention lets each region attend to the words.
        tokenizer: the model's.
        inputs: outputs of the processor for B questions and images.
        layer: a decoder layer; None for the mean over all. The mean over heads is taken in either case.

    Returns:
        For each question its T words (unknown ones as the tokenizer's unknown token), float32 weights `(T, N)` over
        the N real regions, each row with the sum 1, and float32 weights `(N,)` of the regions in the answer, with
        the sum 1: the mean over the glimpses of the reduction of the image.

    Raises:
        ValueError: no such layer.
    """
    with evaluation_mode(model), torch.inference_mode():
        outputs: Any = model(**inputs, output_attentions=True, return_dict=True, attn_implementation="eager")
    guided = [weights.float() for weights in outputs.cross_attentions]
    weights = mean_over_heads(guided, layer).mT.cpu().numpy()
    glimpses = outputs.image_glimpses.float().mean(1).cpu().numpy()
    words = inputs["attention_mask"].bool().cpu().numpy()
    given = inputs.get("visual_attention_mask")
    regions = np.ones(glimpses.shape, dtype=bool) if given is None else given.bool().cpu().numpy()
    return [
        (
            [str(tokenizer.convert_ids_to_tokens(word)) for word in ids[of_words].tolist()],
            shares(of_question[of_words][:, of_regions]),
            shares(of_image[of_regions]),
        )
        for ids, of_words, of_question, of_image, of_regions in zip(
            inputs["input_ids"].cpu().numpy(), words, weights, glimpses, regions, strict=True
        )
    ]


def shares(weights: np.ndarray) -> np.ndarray:
    """Divides weights, which are not negative, by their sum over the last axis."""
    return weights / np.maximum(weights.sum(-1, keepdims=True), np.finfo(np.float32).tiny)


__all__ = ["question_attention"]
