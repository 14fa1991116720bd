"""Translation: teacher forcing with label smoothing, and scoring with SacreBLEU."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from sacrebleu.metrics import BLEU, CHRF
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import DataError, EpochSampler, TokenSampler, load_data
from ..data.collator import IGNORED_LABEL
from ..data.parallel_text import SIDES, name_lines
from ..data.vocabulary import build_subword_tokenizer
from ..io.files import write_output
from ..models.captioning import WordGenerationMixin
from ..models.text_scores import TextScores, text_scores
from ..training import config as settings
from ..training.batches import map_sharded
from ..training.objectives.teacher_forcing import TeacherForcing
from ..training.run import short_checksum
from ..training.task import Evaluation, InputRoles, Stage, Task
from . import new_models
from .settings import TranslationConfig

logger = logging.getLogger(__name__)

SCORES = ("bleu", "chrf")


def score_translations(
    predictions: Sequence[str], references: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns BLEU (Papineni et al. 2002) and chrF (Popovic 2015), from 0 to 100, and SacreBLEU's signature of each.

    Each translation has one reference; SacreBLEU (Post 2018) tokenizes both with 13a, case-sensitively.
    """
    scores, signatures = {}, {}
    for name, metric in zip(SCORES, (BLEU(), CHRF()), strict=True):
        scores[name] = metric.corpus_score(list(predictions), [list(references)]).score
        signatures[name] = str(metric.get_signature())
    return scores, signatures


def load_pairs(spec: str, split: str, limit: int | None = None) -> Dataset:
    """Returns one split of parallel text, or its first `limit` pairs, with columns `source`, `target` and `line`."""
    rows = load_data(spec, split)
    missing = [name for name in (*SIDES, "line") if name not in rows.column_names]
    if missing:
        spec_of_text = "parallel:SOURCE,source=LANGUAGE,target=LANGUAGE"
        raise DataError(f"{spec}, split {split}, has no column {missing[0]!r} and no parallel text: {spec_of_text}.")
    return rows if limit is None else rows.take(limit)


def count_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> np.ndarray:
    """Returns the number of tokens of each text, including the end token."""
    parts = (texts[start : start + 1000] for start in range(0, len(texts), 1000))
    return np.array([len(ids) for part in parts for ids in tokenizer(part, verbose=False)["input_ids"]], dtype=np.int64)


def with_lengths(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, data: str) -> Dataset:
    """Returns the pairs with at most `max_length` tokens per side; the column `length` is that of the longer side."""
    lengths = np.maximum(*(count_tokens(tokenizer, rows[side][:]) for side in SIDES))
    kept = np.flatnonzero(lengths <= max_length)
    if len(kept) < len(rows):
        lines = np.array(rows["line"][:])[lengths > max_length].tolist()
        too_long = f"{len(lines)} of {len(rows)} pairs of {data} have a side of more than {max_length} tokens"
        if not len(kept):
            raise DataError(f"{too_long}; no pair is left. Raise data.max_length.")
        logger.warning("Warning: %s and are left out of training: %s.", too_long, name_lines(lines))
        rows = rows.select(kept).flatten_indices(keep_in_memory=True)
    return rows.add_column("length", lengths[kept].tolist())


def new_translator(config: TranslationConfig, rows: Dataset) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Makes the translator of a training config, with subwords of the training pairs, or loads a trained one."""
    fields, data = dict(config.model), config.data
    if "init_from" in fields:
        model, tokenizer = new_models.trained_model(fields, "translation")
    else:
        kind = new_models.new_config_class(fields, "translation")
        texts = chain.from_iterable(rows[side] for side in SIDES)
        tokenizer = build_subword_tokenizer(texts, vocab_size=data.vocab_size, max_length=data.max_length)
        tokens = new_models.special_token_ids(tokenizer)
        model = new_models.new_model(kind(**fields, **tokens), "AutoModelForSeq2SeqLM")
    new_models.set_generation_defaults(model, config.evaluation)
    return model, tokenizer


def translate_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    scores: bool = False,
    **generate_arguments: Any,
) -> list[tuple[str, TextScores | None]]:
    """Returns translations of a few texts, each on one line, and their scores (`None` unless requested)."""
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        ids = cast(WordGenerationMixin, model).generate(**inputs, **generate_arguments)
    lines = [" ".join(text.strip().splitlines()) for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    line_scores: list[Any] = text_scores(model, tokenizer, inputs, ids) if scores else [None] * len(lines)
    return list(zip(lines, line_scores, strict=True))


def translate_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    data: str = "the data",
    batch_size: int = 64,
    **generate_arguments: Any,
) -> list[str]:
    """Translates the source of every row, in order; batches have sources of similar length."""
    sources, longest = rows["source"][:], tokenizer.model_max_length
    lengths = count_tokens(tokenizer, sources)
    if (lengths > longest).any():
        lines = np.array(rows["line"][:])[lengths > longest].tolist()
        raise DataError(
            f"{len(lines)} of {len(rows)} sources of {data} have more than {longest} tokens, the model's maximum: "
            f"{name_lines(lines)}; leave them out, or train with a larger data.max_length."
        )
    order = np.argsort(-lengths, kind="stable")

    def translate(places: range) -> list[str]:
        texts = [sources[order[place]] for place in places]
        return [text for text, _ in translate_batch(model, tokenizer, texts, **generate_arguments)]

    translations = map_sharded(translate, len(rows), batch_size, accelerator, description="translating")
    return [translations[place] for place in np.argsort(order)]


def draw_sources(config: Any, shape: tuple[int, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Draws random sources `(rows, tokens)` without padding, for the audit."""
    words = torch.randint(0, config.vocab_size, shape, generator=generator)
    return {"input_ids": words.masked_fill(words == config.pad_token_id, config.bos_token_id)}


class TranslationEvaluation(Evaluation):
    """Translations and their scores."""

    def save(self, path: str | os.PathLike) -> None:
        """Writes the translations, one per line, atomically."""
        write_output(path, "".join(f"{text}\n" for text in self.results))


class TranslationTask(Task):
    """Trains a translator on parallel text from a [`TranslationConfig`]."""

    config_class = TranslationConfig
    unit = "pairs"
    model_noun = "a translator"
    does = "translates sentences"
    pipeline_tag = "translation"
    writes_text = True
    input_roles = InputRoles(
        words="decoder_input_ids",
        word_mask="decoder_attention_mask",
        source=("input_ids",),
        source_mask="attention_mask",
        source_name="source tokens",
        rows_name="sources",
        draw_source=draw_sources,
    )
    config: TranslationConfig

    def load_rows(self, split: str) -> Dataset:
        return load_pairs(self.config.data.spec, split, self.config.data.limit)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        return SCORES

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, Any]:
        return new_translator(self.config, rows)

    def training_rows(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> Dataset:
        return with_lengths(rows, processor, processor.model_max_length, self.config.data.spec)

    def stages(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> list[Stage]:
        training = self.config.training
        return [Stage("xe", TeacherForcing(training.label_smoothing), training)]

    def sampler(self, rows: Dataset) -> Callable[..., EpochSampler]:
        training = self.config.training
        if training.batch_tokens is None:
            return super().sampler(rows)
        if training.drop_last:
            raise settings.ConfigError("training.drop_last needs training.batch_tokens=null.")
        return partial(TokenSampler, rows["length"][:], training.batch_tokens, seed=training.seed)

    def collator(self, processor: Any) -> Callable[[list], dict]:
        return partial(collate_pairs, processor)

    def evaluate(
        self, model: PreTrainedModel, processor: Any, rows: Dataset, accelerator: Accelerator, **generate_arguments: Any
    ) -> TranslationEvaluation:
        options = new_models.checked_generation(generate_arguments, model.generation_config)
        spec, batch_size = self.config.data.spec, self.config.evaluation.batch_size
        translations = translate_rows(model, processor, rows, accelerator, data=spec, batch_size=batch_size, **options)
        scores, signatures = score_translations(translations, rows["target"][:])
        return TranslationEvaluation(scores, signatures, translations, {**scores, "signatures": signatures})

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return new_models.generation_settings(generation, options)

    def identity(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> dict:
        return {
            "number of pairs": len(rows),
            "text of the pairs": short_checksum([rows[side][:] for side in SIDES]),
            "vocabulary": short_checksum(sorted(processor.get_vocab().items())),
        }


def collate_pairs(tokenizer: PreTrainedTokenizerBase, rows: Sequence[dict]) -> dict[str, torch.Tensor]:
    """Makes a batch of pairs: `input_ids` and `attention_mask` `(B, S)`, and `labels` `(B, T)` with -100 at padding."""
    sources, targets = (tokenizer([row[side] for row in rows])["input_ids"] for side in SIDES)
    sources = [torch.tensor(tokens) for tokens in sources]
    labels = [torch.tensor(tokens) for tokens in targets]
    return {
        "input_ids": pad_sequence(sources, batch_first=True, padding_value=tokenizer.pad_token_id),
        "attention_mask": pad_sequence([torch.ones_like(tokens) for tokens in sources], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED_LABEL),
    }
