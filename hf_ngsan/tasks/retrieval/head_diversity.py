"""How different the attention heads of a dual encoder are, on the images and captions of a dataset."""

from typing import Any

import torch
from accelerate import Accelerator
from datasets import Dataset

from ...data.collator import visual_arguments
from ...data.vocabulary import with_words
from ...models.contrastive import diversity_penalty
from ...training.batches import take
from ...training.gathering import map_sharded
from ...visualization.heads import head_overlap


def measure_head_diversity(
    model: Any, processor: Any, rows: Dataset, accelerator: Accelerator | None = None, batch_size: int = 64
) -> dict[str, float]:
    """Measures the heads of either side.

    Args:
        model: a dual encoder on the accelerator's device, in evaluation mode.
        processor: the model's.
        rows: with images or visual features, and captions.
        accelerator: to share the work among its processes; each gets the whole result.
        batch_size: images a batch, of one process.

    Returns:
        For each side with heads `..._diversity_penalty`, the mean of ||A A^T - I||_F^2 (eq. 5 of Park et al. 2020, the
        "diversity loss" of its table 5), and with several heads `..._head_overlap`, the mean cosine of the maps of two
        heads, in [0, 1].
    """

    def measure(indices: range) -> list[dict[str, list[float]]]:
        batch = take(rows, indices)
        texts = with_words(processor.tokenizer, [caption for row in batch for caption in row["captions"]])
        found: dict[str, list[float]] = {}
        with torch.inference_mode():
            if model.config.num_image_heads:
                images = model.get_image_features(**processor(**visual_arguments(batch)).to(model.device))
                found |= of_maps("image", images.attentions[-1])
            if model.config.num_text_heads:
                captions = model.get_text_features(**processor(text=texts, truncation=True).to(model.device))
                found |= of_maps("text", captions.attentions[-1])
        return [found] + [{}] * (len(batch) - 1)

    measured = map_sharded(measure, len(rows), batch_size, accelerator)
    names = dict.fromkeys(name for one in measured for name in one)
    values = {name: [value for one in measured for value in one.get(name, ())] for name in names}
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def of_maps(side: str, weights: torch.Tensor) -> dict[str, list[float]]:
    """Returns the penalty and the overlap of each row of maps `(rows, heads, positions)`."""
    found: dict[str, list[float]] = {f"{side}_diversity_penalty": diversity_penalty(weights).tolist()}
    if weights.shape[1] > 1:
        found[f"{side}_head_overlap"] = [head_overlap([maps]) for maps in weights.float().cpu().numpy()]
    return found
