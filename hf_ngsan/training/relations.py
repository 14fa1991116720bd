"""How often a captioner chooses the right spatial relation, on the drawn scenes."""

from collections.abc import Sequence

from accelerate import Accelerator
from transformers import PreTrainedModel, ProcessorMixin

from ..data import relation_prompts, score_relation_completions
from .generation import caption_batch, share_out
from .rows import take

ANSWER_TOKENS = 6


def relation_accuracy(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Sequence,
    accelerator: Accelerator | None = None,
    *,
    batch_size: int = 64,
) -> dict[str, float]:
    """Let the captioner finish, greedily, captions that break off before their relation.

    Args:
        model, processor, accelerator: see [`generate_captions`].
        rows: rows of the `scenes` data set.
        batch_size: captions finished at once in one process.

    Returns:
        `symmetric` and `directional`, the shares of right relations; chance is 0.5.
    """
    captions = list(rows.select_columns("captions"))
    prompts = [relation_prompts(row) for row in captions]
    questions = [(index, prompt.text) for index, row_prompts in enumerate(prompts) for prompt in row_prompts]

    def answer(indices: range) -> list[str]:
        row_indices, prefixes = zip(*(questions[index] for index in indices), strict=True)
        return caption_batch(
            model,
            processor,
            take(rows, row_indices),
            accelerator,
            prefixes=prefixes,
            num_beams=1,
            length_penalty=None,
            max_new_tokens=ANSWER_TOKENS,
        )

    texts = iter(share_out(answer, len(questions), batch_size, accelerator))
    report = score_relation_completions([[next(texts) for _ in row_prompts] for row_prompts in prompts], captions)
    return {group: report[group] for group in ("symmetric", "directional") if report[group] is not None}
