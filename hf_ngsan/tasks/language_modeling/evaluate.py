"""Scores of a language model on all captions of a split."""

import math
from typing import Any

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.collator import IGNORED_LABEL
from ...models.modeling_rstnet_language_model import shift_behind_start
from ...training.batches import take
from ...training.gathering import map_sharded

MAX_LOSS = 700.0
"""Largest loss with a finite perplexity: exp(710) exceeds float64."""


def evaluate_language_model(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
) -> dict[str, float]:
    """Scores a language model on all captions of a dataset.

    A model with a bidirectional text encoder, like the released one of RSTNet, is run word by word, as it decodes: in
    one pass it would see the words to predict.

    Args:
        model: a language model in evaluation mode.
        processor: the model's.
        rows: rows with a column `captions`.
        accelerator: accelerator of the processes that split the work; each gets the whole result.
        batch_size: rows evaluated together in one process.

    Returns:
        `loss`, the mean cross-entropy of a word (the end token is one), `perplexity`, its exponential, and
        `token_accuracy`.
    """

    def measure(indices: range) -> list[tuple[float, int, int]]:
        of_rows = [row["captions"] for row in take(rows, indices)]
        captions = [caption for texts in of_rows for caption in texts]
        labels = processor(captions=captions)["labels"].to(model.device)
        with torch.inference_mode():
            log_probs = next_word_logits(model, labels).float().log_softmax(-1)
        targets = labels != IGNORED_LABEL
        losses = -log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * targets
        right = (log_probs.argmax(-1) == labels) & targets
        sums = torch.stack([losses.double().sum(-1), right.sum(-1).double(), targets.sum(-1).double()], dim=-1)
        return [tuple(part.sum(0).tolist()) for part in sums.split([len(texts) for texts in of_rows])]

    found = map_sharded(measure, len(rows), batch_size, accelerator, description="evaluation")
    loss, right, number = (sum(values) for values in zip(*found, strict=True))
    mean = loss / max(number, 1)
    perplexity = math.inf if mean > MAX_LOSS else math.exp(mean)
    return {"loss": mean, "perplexity": perplexity, "token_accuracy": right / max(number, 1)}


def next_word_logits(model: Any, labels: torch.Tensor) -> torch.Tensor:
    """Returns logits `(rows, length, vocab_size)` of the words of labels `(rows, length)`."""
    words = shift_behind_start(labels, model.config.bos_token_id, model.config.pad_token_id)
    if model.config.language_attention == "causal":
        return model(words, use_cache=False).logits
    cache, logits = None, []
    seen = torch.ones_like(words)
    for end in range(1, words.shape[1] + 1):
        outputs = model(words[:, end - 1 : end], attention_mask=seen[:, :end], cache=cache, use_cache=True)
        cache = outputs.cache
        logits.append(outputs.logits)
    return torch.cat(logits, dim=1)
