"""Language modeling: predicts the next word of a caption from the previous words, without the image."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import CaptionCollator, load_data
from ..data.collator import IGNORED_LABEL
from ..models.captioning import shift_tokens_right
from ..registry import model_class
from ..training.batches import map_sharded, take
from ..training.objectives.teacher_forcing import TeacherForcing
from ..training.task import Evaluation, InputRoles, Stage, Task, Update
from . import new_models
from .caption_rows import captions_identity, load_rows, new_tokenizer
from .new_words import align
from .settings import LanguageModelingConfig


def new_language_model(config: LanguageModelingConfig, captions: Sequence[str]) -> tuple[Any, ProcessorMixin]:
    """Makes the language model of a training config, with the vocabulary of the training captions."""
    fields = dict(config.model)
    if "init_from" in fields:
        return new_models.trained_model(fields, "language_modeling")
    kind = new_models.new_config_class(fields, "language_modeling")
    tokenizer = new_tokenizer(captions, config.data)
    encoder = fields.get("text_encoder_config")
    if isinstance(encoder, dict) and not fields.get("pretrained_text_encoder"):
        fields["text_encoder_config"] = {"vocab_size": len(tokenizer), **encoder}
    tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    model = new_models.new_model(kind(**fields, **tokens, vocab_size=len(tokenizer)), "AutoModel")
    align(model, tokenizer)
    return model, model_class(kind.model_type, "AutoProcessor")(tokenizer=tokenizer)


def evaluate_language_model(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
) -> dict[str, float]:
    """Returns the mean cross-entropy per word (including the end token), its exponential `perplexity`, and accuracy."""

    def measure(indices: range) -> list[tuple[float, int, int]]:
        captions_by_row = [row["captions"] for row in take(rows, indices)]
        captions = [caption for texts in captions_by_row for caption in texts]
        labels = processor(captions=captions)["labels"].to(model.device)
        with torch.inference_mode():
            log_probs = next_word_logits(model, labels).float().log_softmax(-1)
        targets = labels != IGNORED_LABEL
        losses = -log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * targets
        right = (log_probs.argmax(-1) == labels) & targets
        values = torch.stack([losses, right.to(losses), targets.to(losses)]).cpu().double()  # MPS has no float64
        sums = values.sum(-1).mT
        return [tuple(part.sum(0).tolist()) for part in sums.split([len(texts) for texts in captions_by_row])]

    measured = map_sharded(measure, len(rows), batch_size, accelerator, description="evaluation")
    loss, right, number = (sum(values) for values in zip(*measured, strict=True))
    mean = loss / max(number, 1)
    perplexity = math.exp(mean) if mean < 700 else math.inf  # exp(710) exceeds float64
    return {"loss": mean, "perplexity": perplexity, "token_accuracy": right / max(number, 1)}


def next_word_logits(model: Any, labels: torch.Tensor) -> torch.Tensor:
    """Returns logits `(rows, length, vocab_size)` for labels `(rows, length)`; a bidirectional model runs per word."""
    words = shift_tokens_right(labels, model.config.bos_token_id, model.config.pad_token_id)
    if model.config.language_attention == "causal":
        return model(words, use_cache=False).logits
    cache, logits = None, []
    mask = torch.ones_like(words)
    for end in range(1, words.shape[1] + 1):
        outputs = model(words[:, end - 1 : end], attention_mask=mask[:, :end], cache=cache, use_cache=True)
        cache = outputs.cache
        logits.append(outputs.logits)
    return torch.cat(logits, dim=1)


class NextWord(TeacherForcing):
    """Cross-entropy of each word given only the previous words."""

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        config = model.config
        return {**inputs, "input_ids": shift_tokens_right(inputs["labels"], config.bos_token_id, config.pad_token_id)}


class LanguageModelingTask(Task):
    """Trains a language model on captions from a [`LanguageModelingConfig`]."""

    config_class = LanguageModelingConfig
    unit = "images"
    model_noun = "a language model"
    does = "predicts the words of captions"
    tags = ("language-modeling",)
    has_results = False
    input_roles = InputRoles(words="input_ids", word_mask="attention_mask", rows_name="captions")
    config: LanguageModelingConfig

    @property
    def greater_is_better(self) -> bool:
        return self.metric == "token_accuracy"

    def load_rows(self, split: str) -> Dataset:
        data = self.config.data
        if not data.spec.startswith("parallel:"):
            rows = load_rows(data.spec, split, limit=data.limit, for_training=True)
            return rows.select_columns(["image_id", "captions"])
        rows = load_data(data.spec, split)  # sentences of the target language, as captions without images
        rows = Dataset.from_dict({"image_id": rows["line"], "captions": [[text] for text in rows["target"]]})
        return rows if data.limit is None else rows.take(data.limit)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        return ["perplexity", "loss", "token_accuracy"]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_language_model(self.config, captions)
        new_models.report_vocabulary(self.config, processor.tokenizer, captions)
        return model, processor

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        training = self.config.training
        return [Stage("xe", NextWord(training.label_smoothing), training)]

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.config.data
        return CaptionCollator(
            processor,
            captions_per_image=data.captions_per_image,
            max_caption_length=data.max_caption_length,
            seed=self.config.training.seed,
            with_images=False,
        )

    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation:
        batch_size = self.config.evaluation.batch_size
        return Evaluation(evaluate_language_model(model, processor, rows, accelerator, batch_size))

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return {"captions": "all"}

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return captions_identity(model, processor, rows)
