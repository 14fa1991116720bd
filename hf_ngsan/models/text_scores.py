"""Log-probabilities of the words of generated texts, for any decoding method.

They come from the unmodified distribution of the model, without penalties, temperature and suppressed tokens.
`generate()` generates the sequences again, so this works for every model that has it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .captioning import mask_after_eos
from .decoding import StepwiseDecoder


class TextScores(NamedTuple):
    """The scores of a text, in nats."""

    score: float  # mean log-probability of the generated tokens, including the end token
    words: list[tuple[str, float]]  # generated words, each with the sum of the log-probabilities of its tokens


@torch.inference_mode()
def token_log_probabilities(model: Any, inputs: Mapping[str, Any], sequences: torch.Tensor) -> torch.Tensor:
    """Returns log-probabilities `(B * C, new_tokens)` of new tokens of `sequences` `(B * C, length)`; 0 after ends."""
    logits: list[torch.Tensor] = []

    def rewrite(model: Any, input_ids: torch.Tensor, *search_arguments: Any, **model_kwargs: Any) -> torch.Tensor:
        for name in ("logits_processor", "stopping_criteria", "generation_config"):
            model_kwargs.pop(name, None)
        decoder = StepwiseDecoder(model, input_ids, model_kwargs)
        for words in sequences[:, input_ids.shape[1] :].unbind(1):
            logits.append(decoder.step().logits[:, -1].float())
            decoder.append(words)
        return decoder.sequences

    number = len(next(value for value in inputs.values() if torch.is_tensor(value)))
    each = {"do_sample": True, "num_beams": 1, "num_return_sequences": len(sequences) // number}
    model.generate(**inputs, **each, max_new_tokens=sequences.shape[1], custom_generate=rewrite)
    tokens = sequences[:, sequences.shape[1] - len(logits) :]
    values = torch.stack(logits, dim=1).log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)
    values = values.masked_fill(mask_after_eos(tokens, model.generation_config.eos_token_id), 0.0)
    if not values.isfinite().all():
        raise RuntimeError("the model returns log-probabilities that are not finite; its weights may be damaged")
    return values


def text_scores(
    model: Any, tokenizer: PreTrainedTokenizerBase, inputs: Mapping[str, Any], sequences: torch.Tensor
) -> list[TextScores]:
    """Returns the scores of generated texts; see [`token_log_probabilities`] for the arguments."""
    values = token_log_probabilities(model, inputs, sequences)
    start = sequences.shape[1] - values.shape[1]
    lengths = (~mask_after_eos(sequences[:, start:], model.generation_config.eos_token_id)).sum(-1).tolist()
    scores = []
    for ids, length, token_values in zip(sequences.tolist(), lengths, values.tolist(), strict=True):
        log_probabilities = token_values[:length]
        words = words_of_tokens(tokenizer, ids[:start], ids[start : start + length], log_probabilities)
        scores.append(TextScores(sum(log_probabilities) / max(length, 1), words))
    return scores


def words_of_tokens(
    tokenizer: PreTrainedTokenizerBase, before: list[int], tokens: list[int], values: list[float]
) -> list[tuple[str, float]]:
    """Returns the words of the tokens after a prefix, each with the sum of the values of its tokens."""
    silent = set(tokenizer.all_special_ids)
    sums: dict[int, float] = {}
    for end, (token, value) in enumerate(zip(tokens, values, strict=True), start=1):
        words = str(tokenizer.decode([*before, *tokens[:end]], skip_special_tokens=True)).split()
        if token not in silent and words:
            sums[len(words) - 1] = sums.get(len(words) - 1, 0.0) + value
    whole = str(tokenizer.decode([*before, *tokens], skip_special_tokens=True)).split()
    return [(whole[place], value) for place, value in sums.items()]
