"""Which visual tokens a captioner attended to while it predicted each word."""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

NOT_FOR_THE_ENCODER = ("labels", "decoder_input_ids", "decoder_attention_mask")


@dataclass(frozen=True)
class WordAttention:
    """Cross-attention of one caption.

    Attributes:
        words: the T words of the caption, without special tokens.
        weights: float32 `(T, N)`; row t belongs to the prediction of word t and sums to 1 over the N visual tokens.
    """

    words: list[str]
    weights: np.ndarray

    def of(self, word: str | int) -> np.ndarray:
        """The weights `(N,)` of a word, given itself (its first occurrence) or its position.

        Raises:
            ValueError: the caption has no such word.
        """
        return self.weights[self.position(word)]

    def position(self, word: str | int) -> int:
        """The position of a word in the caption; raises as `of` does."""
        if isinstance(word, str) and word in self.words:
            return self.words.index(word)
        if isinstance(word, int) and -len(self.words) <= word < len(self.words):
            return word % len(self.words)
        raise ValueError(
            f"The caption {' '.join(self.words)!r} has no word {word!r}; give one of its words or its index."
        )


def word_attention(model, tokenizer, inputs: Mapping, sequences, layer: int | None = None) -> list[WordAttention]:
    """Cross-attention over visual tokens for every word of generated captions.

    One teacher-forced pass with eager attention over the finished captions. A prediction depends on the words before it
    only, so these are the weights of the decoding steps themselves, whether greedy, sampled or of beams. Afterwards the
    model has its attention implementation and its training mode back.

    Args:
        model: an encoder-decoder captioner.
        tokenizer: the model's.
        inputs: what the processor made of B images; its prefixes and labels are not looked at.
        sequences (`torch.LongTensor` of shape `(B * C, length)`): what `generate()` returned, start token included; C
            captions an image, those of one image next to each other.
        layer: the decoder layer to look at; None for the mean over all. The mean over heads is taken in either case.

    Returns:
        One `WordAttention` for each sequence, over the real visual tokens of its image.

    Raises:
        ValueError: no such layer.
    """
    import torch

    encoder_inputs = {name: value for name, value in inputs.items() if name not in NOT_FOR_THE_ENCODER}
    sequences = sequences.to(model.device)
    with eager_attention(model), torch.inference_mode():
        outputs = model(
            **encoder_inputs,
            decoder_input_ids=sequences[:, :-1],
            decoder_attention_mask=(sequences[:, :-1] != tokenizer.pad_token_id).long(),
            output_attentions=True,
            use_cache=False,
        )
    layers = torch.stack(outputs.cross_attentions).float()  # (layers, captions, heads, words, regions)
    if layer is not None and not -len(layers) <= layer < len(layers):
        raise ValueError(f"The decoder has layers 0 to {len(layers) - 1}; there is no layer {layer}.")
    weights = (layers.mean(0) if layer is None else layers[layer]).mean(1).cpu().numpy()

    targets = sequences[:, 1:].tolist()
    masks = region_masks(inputs, weights)
    return [
        attention_of(tokenizer, ids, of_words, masks[index * len(masks) // len(targets)])
        for index, (ids, of_words) in enumerate(zip(targets, weights, strict=True))
    ]


def region_masks(inputs: Mapping, weights: np.ndarray) -> np.ndarray:
    """Which visual tokens are real: `(B, N)`; all of them where the inputs have no mask."""
    mask = inputs.get("attention_mask")
    return np.ones((len(weights), weights.shape[-1]), dtype=bool) if mask is None else mask.bool().cpu().numpy()


def attention_of(tokenizer, ids: list[int], weights: np.ndarray, mask: np.ndarray) -> WordAttention:
    silent = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    kept = [position for position, token in enumerate(ids) if token not in silent]
    words = tokenizer.convert_ids_to_tokens([ids[position] for position in kept])
    return WordAttention(words, weights[kept][:, mask])


@contextmanager
def eager_attention(model):
    """Inside the `with` block the model is in evaluation mode and returns attention weights."""
    implementation, training = model.config._attn_implementation, model.training
    model.set_attn_implementation("eager")
    model.eval()
    try:
        yield
    finally:
        model.set_attn_implementation(implementation)
        model.train(training)
