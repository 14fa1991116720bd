"""Translation: teacher forcing with label smoothing, and translations scored by SacreBLEU."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data import EpochSampler, TokenSampler
from ...data.collator import IGNORED_LABEL
from ...data.parallel_text import SIDES
from ...io.files import write_output
from ...metrics.translation import SCORES, score_translations
from ...training.objectives.teacher_forcing import TeacherForcing
from ...training.recipe import RecipeError
from ...training.run import short_checksum
from ...training.task import Evaluation, InputRoles, Stage, Task
from ..generation_options import add_generation_options, checked_options, generation_settings
from .build import new_translator
from .evaluate import translate_rows
from .recipe import TranslationRecipe
from .rows import load_pairs, with_lengths


def draw_sources(config: Any, shape: tuple[int, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Draws sources `(rows, tokens)` without padding."""
    words = torch.randint(0, config.vocab_size, shape, generator=generator)
    return {"input_ids": words.masked_fill(words == config.pad_token_id, config.bos_token_id)}


class TranslationEvaluation(Evaluation):
    """Translations and their scores."""

    def save(self, path: str | os.PathLike) -> None:
        """Writes the translations, one a line, whole or not at all."""
        write_output(path, "".join(f"{text}\n" for text in self.results))


class TranslationTask(Task):
    """Trains a translator on parallel text by a [`TranslationRecipe`]."""

    recipe_class = TranslationRecipe
    unit = "pairs"
    model_noun = "a translator"
    does = "translates sentences"
    pipeline_tag = "translation"
    input_roles = InputRoles(
        words="decoder_input_ids",
        word_mask="decoder_attention_mask",
        source=("input_ids",),
        source_mask="attention_mask",
        source_name="source tokens",
        rows_name="sources",
        draw_source=draw_sources,
    )
    recipe: TranslationRecipe

    def load_rows(self, split: str) -> Dataset:
        return load_pairs(self.recipe.data.spec, split, self.recipe.data.limit)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        return SCORES

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, Any]:
        return new_translator(self.recipe, rows)

    def training_rows(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> Dataset:
        return with_lengths(rows, processor, processor.model_max_length, self.recipe.data.spec)

    def stages(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> list[Stage]:
        training = self.recipe.training
        return [Stage("xe", TeacherForcing(training.label_smoothing), training)]

    def sampler(self, rows: Dataset) -> Callable[..., EpochSampler]:
        training = self.recipe.training
        if training.batch_tokens is None:
            return super().sampler(rows)
        if training.drop_last:
            raise RecipeError(
                "training.drop_last is for batches of training.batch_size pairs; leave it out, or set "
                "training.batch_tokens to null."
            )
        return partial(TokenSampler, rows["length"][:], training.batch_tokens, seed=training.seed)

    def collator(self, processor: Any) -> Callable[[list], dict]:
        return partial(collate_pairs, processor)

    def evaluate(
        self, model: PreTrainedModel, processor: Any, rows: Dataset, accelerator: Accelerator, **generate_arguments: Any
    ) -> TranslationEvaluation:
        given = checked_options(generate_arguments, model.generation_config)
        spec, batch_size = self.recipe.data.spec, self.recipe.evaluation.batch_size
        translations = translate_rows(model, processor, rows, accelerator, data=spec, batch_size=batch_size, **given)
        scored = score_translations(translations, rows["target"][:])
        report = {**scored.scores, "signatures": scored.signatures}
        return TranslationEvaluation(scored.scores, scored.signatures, translations, report)

    @classmethod
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        add_generation_options(parser)

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return generation_settings(generation, options)

    def identity(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> dict:
        return {
            "number of pairs": len(rows),
            "text of the pairs": short_checksum([rows[side][:] for side in SIDES]),
            "vocabulary": short_checksum(sorted(processor.get_vocab().items())),
        }


def collate_pairs(tokenizer: PreTrainedTokenizerBase, rows: Sequence[dict]) -> dict[str, torch.Tensor]:
    """Makes a batch of pairs: `input_ids` and `attention_mask` `(B, S)`, `labels` `(B, T)`, -100 at padding."""
    sources, targets = (tokenizer([row[side] for row in rows])["input_ids"] for side in SIDES)
    sources = [torch.tensor(tokens) for tokens in sources]
    labels = [torch.tensor(tokens) for tokens in targets]
    return {
        "input_ids": pad_sequence(sources, batch_first=True, padding_value=tokenizer.pad_token_id),
        "attention_mask": pad_sequence([torch.ones_like(tokens) for tokens in sources], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED_LABEL),
    }
