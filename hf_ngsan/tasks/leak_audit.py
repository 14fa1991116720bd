"""An audit of models that write words: predictions must not depend on later words, padding or other rows.

```python
for finding in audit_model(model):
    print(finding)  # "holds  later words: a later word changes earlier predictions by 0.0e+00 at most."
```
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ..loading.models import is_guest, task_of
from ..models.attention_maps import evaluation_mode
from ..training.task import InputRoles
from .registry import TASKS, task_class

TOLERANCE = 1e-5
"""Largest change of a log-probability that rounding in float32 explains."""
ROWS, WORDS, REGIONS, SIDE, PADDED = 3, 7, 7, 3, 2


@dataclass(frozen=True)
class Finding:
    """The effect of a change of the inputs on log-probabilities that must not depend on it.

    Attributes:
        name: name of the contract, such as "later words".
        change: largest change of a log-probability; `None` if the contract does not apply.
        said: beginning of a sentence about the change.
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


def audit_model(model: PreTrainedModel, seed: int = 0) -> list[Finding]:
    """Checks the dependence of log-probabilities on random inputs.

    Changes of later words, of padding (of words and of the source), of the other rows of the batch and of the order of
    regions must change no log-probability by more than 1e-5; so must decoding step by step instead of teacher forcing.

    Args:
        model: a captioner, translator or language model of any of the package's types; a captioner with a vision
            encoder is given visual features.
        seed: seed of the random inputs.

    Returns:
        A finding for each contract that the model's inputs can break.

    Raises:
        ValueError: the model writes no words.
    """
    kind, task = model.config.model_type, task_of(model.config)
    if is_guest(model.config):
        raise ValueError(f"A {kind} model is one of transformers, whose inputs the audit does not know.")
    roles = task_class(task).input_roles if task in TASKS else None
    if roles is None:
        raise ValueError(f"A {kind} model writes no words, so there is nothing to audit.")
    inputs = random_inputs(model.config, roles, torch.Generator().manual_seed(seed))
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    with evaluation_mode(model), torch.inference_mode():
        audit = Audit(model, roles, inputs)
        return [explained(finding, model.config) for finding in audit.findings()]


def random_inputs(config: Any, roles: InputRoles, generator: torch.Generator) -> Inputs:
    """Returns random words, none of them padding, and sources; all rows but the first have padding in the source."""
    start = getattr(config, "decoder_start_token_id", None)
    start = config.bos_token_id if start is None else start
    words = torch.randint(0, config.vocab_size, (ROWS, min(WORDS, config.max_position_embeddings)), generator=generator)
    words[words == config.pad_token_id] = start
    words[:, 0] = start
    inputs = {roles.words: words, roles.word_mask: torch.ones_like(words)}
    if roles.draw_source is None or roles.source_mask is None:
        return inputs
    rows, columns = getattr(config, "grid_size", None) or (SIDE, SIDE)
    number = rows * columns if is_grid(config) else REGIONS
    mask = torch.ones(ROWS, number, dtype=torch.long)
    mask[1:, -PADDED:] = 0
    return {**inputs, **roles.draw_source(config, (ROWS, number), generator), roles.source_mask: mask}


def is_grid(config: Any) -> bool:
    return getattr(config, "order_of_tokens_counts", False)


def largest(*changes: torch.Tensor) -> float:
    """Returns the largest absolute value; NaN if there is one."""
    return torch.stack([change.abs().max() for change in changes]).max().item()


class Audit:
    """Findings of one model, in evaluation mode, with random inputs."""

    def __init__(self, model: PreTrainedModel, roles: InputRoles, inputs: Inputs) -> None:
        self.model, self.roles, self.inputs = model, roles, inputs
        self.config: Any = model.config
        self.words = inputs[roles.words]
        self.is_grid = is_grid(self.config)
        self.expected = self.score()

    def score(self, **changed: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities `(B, T, vocab_size)` of the next words, all at once, of changed inputs."""
        return self.model(**{**self.inputs, **changed}, use_cache=False).logits.float().log_softmax(-1)

    def findings(self) -> Iterator[Finding]:
        roles = self.roles
        yield Finding("later words", self.later_words(), "a later word changes earlier predictions")
        yield Finding("padded words", self.padded_words(), "padding changes predictions")
        if roles.source:
            yield Finding(f"padded {roles.source_name}", self.padded_source(), "padding changes predictions")
        others = f"other {roles.rows_name}"
        yield Finding(f"{others} of the batch", self.other_rows(), f"the {others} change predictions")
        if self.is_grid:
            yield Finding("order of regions", None, "the visual tokens are a grid, whose order says where they are.")
        elif roles.source_is_a_set:
            yield Finding("order of regions", self.reordered(), "the order of regions changes predictions")
        yield Finding("step by step", self.step_by_step(), "decoding with a cache differs from teacher forcing")

    def later_words(self) -> float:
        changes, words = [], self.words
        for position in range(1, words.shape[1]):
            changed = words.clone()
            changed[:, position] = words[:, position].roll(1)
            changed[:, position + 1 :] = words[:, position + 1 :].flip(1)
            logits = self.score(**{self.roles.words: changed})
            changes.append((logits - self.expected)[:, :position])
        return largest(*changes)

    def padded_words(self) -> float:
        changes, length = [], self.expected.shape[1]
        for before, after in ((0, PADDED), (PADDED, 0)):
            words = torch.nn.functional.pad(self.words, (before, after), value=self.config.pad_token_id)
            mask = torch.nn.functional.pad(self.inputs[self.roles.word_mask], (before, after))
            logits = self.score(**{self.roles.words: words, self.roles.word_mask: mask})
            changes.append(logits[:, before : before + length] - self.expected)
        return largest(*changes)

    def padded_source(self) -> float:
        padding = self.inputs[self.roles.source_mask or ""] == 0
        changed = {}
        for name in self.roles.source:
            tensor = self.inputs[name]
            if tensor.is_floating_point():
                changed[name] = tensor.masked_fill(padding[..., None], 0.9)
            else:
                changed[name] = torch.where(padding, tensor.roll(1, dims=1), tensor)
        change = self.score(**changed) - self.expected
        if self.is_grid:  # its number of cells is fixed
            return largest(change)
        without = {name: tensor[1:] for name, tensor in self.inputs.items()}
        without |= {name: without[name][:, :-PADDED] for name in self.source_inputs()}
        return largest(change, self.score(**without) - self.expected[1:])

    def source_inputs(self) -> list[str]:
        return [*self.roles.source, *filter(None, [self.roles.source_mask])]

    def other_rows(self) -> float:
        swapped = {name: torch.cat([tensor[:1], tensor[1:].flip(0)]) for name, tensor in self.inputs.items()}
        for name in self.roles.source:
            if swapped[name].is_floating_point():
                swapped[name][1:] = 1 - swapped[name][1:]
        alone = self.score(**{name: tensor[:1] for name, tensor in self.inputs.items()})
        return largest(self.score(**swapped)[:1] - self.expected[:1], alone - self.expected[:1])

    def reordered(self) -> float:
        turned = {name: self.inputs[name].flip(1) for name in self.source_inputs()}
        return largest(self.score(**turned) - self.expected)

    def step_by_step(self) -> float:
        cache, logits, mask = None, [], self.inputs[self.roles.word_mask]
        for end in range(1, self.words.shape[1] + 1):
            step = {self.roles.words: self.words[:, end - 1 : end], self.roles.word_mask: mask[:, :end]}
            outputs = self.model(**{**self.inputs, **step}, cache=cache, use_cache=True)
            cache = outputs.cache
            logits.append(outputs.logits)
        return largest(torch.cat(logits, dim=1).float().log_softmax(-1) - self.expected)


def explained(finding: Finding, config: Any) -> Finding:
    """Adds the reason of a known leak."""
    reason = {
        "later words": "the text encoder of the language model reads the whole caption at once, as released",
        "padded words": "the text encoder of the language model reads padding too, as released",
        "step by step": "the text encoder of the language model gets one token a step, each at position 0, as released",
    }.get(finding.name)
    if finding.holds or reason is None or getattr(config, "language_attention", None) != "bidirectional":
        return finding
    return replace(finding, said=f"{finding.said} (language_attention='bidirectional': {reason})")
