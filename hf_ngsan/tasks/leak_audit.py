"""Whether a captioner sees what it must not see: later words, padding, other images, an order that means nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ..models.attention_maps import evaluation_mode

TOLERANCE = 1e-5
IMAGES, WORDS, REGIONS, SIDE, PADDED = 3, 7, 7, 3, 2
VISUAL = ("visual_features", "visual_boxes", "attention_mask")


@dataclass(frozen=True)
class Finding:
    """What a change of the inputs did to log-probabilities that must not depend on it.

    Attributes:
        name: of the contract, such as "future words".
        change: the largest change of a log-probability; `None` where the contract does not apply.
        said: in a sentence.
    """

    name: str
    change: float | None
    said: str

    @property
    def holds(self) -> bool:
        return self.change is None or self.change <= TOLERANCE

    def __str__(self) -> str:
        if self.change is None:
            return f"n/a    {self.name}: {self.said}"
        verdict = "holds" if self.holds else "LEAKS"
        return f"{verdict}  {self.name}: {self.said} by {self.change:.1e} at most."


Inputs = dict[str, torch.Tensor]
Score = Callable[[Inputs], torch.Tensor]


def audit_captioner(model: PreTrainedModel, seed: int = 0) -> list[Finding]:
    """Checks on random inputs what the log-probabilities of words depend on.

    Changes each later word, padding of words and of visual tokens, the other rows of the batch and the order of the
    regions, each of which must change no log-probability by more than 1e-5, and compares decoding step by step with
    teacher forcing.

    Args:
        model: a captioner of any of the package's types; one with a vision encoder is given visual features.
        seed: of the random inputs.

    Returns:
        A finding for each contract.
    """
    inputs = random_inputs(model.config, torch.Generator().manual_seed(seed))
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    with evaluation_mode(model), torch.inference_mode():
        return [explained(finding, model.config) for finding in findings(model, inputs, lambda i: score(model, i))]


def random_inputs(config: Any, generator: torch.Generator) -> Inputs:
    """Returns words, and visual tokens of which some are padding but for the first image."""
    rows, columns = getattr(config, "grid_size", None) or (SIDE, SIDE)
    number = rows * columns if config.order_of_tokens_counts else REGIONS
    corners = torch.rand(IMAGES, number, 2, generator=generator) * 0.6
    boxes = torch.cat([corners, corners + 0.1 + 0.3 * torch.rand(IMAGES, number, 2, generator=generator)], dim=-1)
    mask = torch.ones(IMAGES, number, dtype=torch.long)
    mask[1:, -PADDED:] = 0
    length = min(WORDS, config.max_position_embeddings)
    words = torch.randint(0, config.vocab_size, (IMAGES, length), generator=generator)
    words[:, 0] = config.decoder_start_token_id
    words[words == config.pad_token_id] = config.decoder_start_token_id
    return {
        "visual_features": torch.randn(IMAGES, number, config.visual_feature_size, generator=generator),
        "visual_boxes": boxes,
        "attention_mask": mask,
        "decoder_input_ids": words,
        "decoder_attention_mask": torch.ones_like(words),
    }


def score(model: PreTrainedModel, inputs: Inputs) -> torch.Tensor:
    """Returns log-probabilities `(B, T, vocab_size)` of the next words, all at once."""
    return model(**inputs, use_cache=False).logits.float().log_softmax(-1)


def largest(change: torch.Tensor) -> float:
    return change.abs().max().item()


def findings(model: PreTrainedModel, inputs: Inputs, score: Score) -> Iterator[Finding]:
    config: Any = model.config
    expected = score(inputs)
    yield Finding("later words", later_words(inputs, expected, score), "a later word changes earlier predictions")
    yield Finding("padded words", padded_words(inputs, expected, score, config), "padding changes predictions")
    yield Finding("padded visual tokens", padded_tokens(inputs, expected, score, config), "padding changes predictions")
    yield Finding(
        "other images of the batch", other_rows(inputs, expected, score), "the other images change predictions"
    )
    if config.order_of_tokens_counts:
        yield Finding("order of regions", None, "the visual tokens are a grid, whose order says where they are.")
    else:
        yield Finding(
            "order of regions", reordered(inputs, expected, score), "the order of regions changes predictions"
        )
    yield Finding(
        "step by step", step_by_step(model, inputs, expected), "decoding with a cache differs from teacher forcing"
    )


def later_words(inputs: Inputs, expected: torch.Tensor, score: Score) -> float:
    changes, words = [], inputs["decoder_input_ids"]
    for position in range(1, words.shape[1]):
        changed = words.clone()
        changed[:, position] = words[:, position].roll(1)
        changed[:, position + 1 :] = words[:, position + 1 :].flip(1)
        logits = score({**inputs, "decoder_input_ids": changed})
        changes.append(largest((logits - expected)[:, :position]))
    return max(changes)


def padded_words(inputs: Inputs, expected: torch.Tensor, score: Score, config: Any) -> float:
    changes, length = [], expected.shape[1]
    for before, after in ((0, PADDED), (PADDED, 0)):
        words = torch.nn.functional.pad(inputs["decoder_input_ids"], (before, after), value=config.pad_token_id)
        mask = torch.nn.functional.pad(inputs["decoder_attention_mask"], (before, after))
        logits = score({**inputs, "decoder_input_ids": words, "decoder_attention_mask": mask})
        changes.append(largest(logits[:, before : before + length] - expected))
    return max(changes)


def padded_tokens(inputs: Inputs, expected: torch.Tensor, score: Score, config: Any) -> float:
    padding = inputs["attention_mask"][..., None] == 0
    changed = {name: inputs[name].masked_fill(padding, 0.9) for name in ("visual_features", "visual_boxes")}
    change = largest(score({**inputs, **changed}) - expected)
    if config.order_of_tokens_counts:  # a grid has as many cells as it has
        return change
    without = {name: tensor[1:] for name, tensor in inputs.items()}
    without |= {name: without[name][:, :-PADDED] for name in VISUAL}
    return max(change, largest(score(without) - expected[1:]))


def other_rows(inputs: Inputs, expected: torch.Tensor, score: Score) -> float:
    swapped = {name: torch.cat([tensor[:1], tensor[1:].flip(0)]) for name, tensor in inputs.items()}
    swapped["visual_features"][1:] *= 2.0
    alone = score({name: tensor[:1] for name, tensor in inputs.items()})
    return max(largest(score(swapped)[:1] - expected[:1]), largest(alone - expected[:1]))


def reordered(inputs: Inputs, expected: torch.Tensor, score: Score) -> float:
    turned = {name: inputs[name].flip(1) for name in VISUAL}
    return largest(score({**inputs, **turned}) - expected)


def step_by_step(model: PreTrainedModel, inputs: Inputs, expected: torch.Tensor) -> float:
    cache, logits = None, []
    words, mask = inputs["decoder_input_ids"], inputs["decoder_attention_mask"]
    for end in range(1, words.shape[1] + 1):
        step = {"decoder_input_ids": words[:, end - 1 : end], "decoder_attention_mask": mask[:, :end]}
        outputs = model(**{**inputs, **step}, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
    return largest(torch.cat(logits, dim=1).float().log_softmax(-1) - expected)


def explained(finding: Finding, config: Any) -> Finding:
    """Adds where a known leak comes from."""
    reason = {
        "later words": "the text encoder of the language model reads the whole caption at once, as released",
        "padded words": "the text encoder of the language model reads padding too, as released",
        "step by step": "the text encoder of the language model gets one token a step, each at position 0, as released",
    }.get(finding.name)
    if finding.holds or reason is None or getattr(config, "language_attention", None) != "bidirectional":
        return finding
    return replace(finding, said=f"{finding.said} (language_attention='bidirectional': {reason})")
