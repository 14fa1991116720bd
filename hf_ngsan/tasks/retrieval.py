"""Image-text retrieval: trains a dual encoder to find the image of a caption, and the captions of an image."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from accelerate import Accelerator
from datasets import Dataset
from tokenizers import processors
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_utils import SizeDict

from ..data import CaptionCollator
from ..data.vocabulary import with_words
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..io.files import write_output
from ..loading.models import is_guest
from ..loading.provenance import remember_features
from ..metrics.retrieval import RECALL_AT, retrieval_metrics, retrieval_ranks
from ..models.text_encoders import find_text_encoder
from ..training import config as settings
from ..training.batches import map_sharded, take
from ..training.objectives.contrastive import Contrastive
from ..training.task import Evaluation, Stage, Task
from . import caption_rows, new_models
from .new_words import learn_new_words
from .retrieval_search import embed_images, embed_texts
from .settings import RetrievalConfig

ONLY_OURS = (
    *(f"data.{key}" for key in ("min_word_count", "new_words", "max_caption_length", "image_size", "language")),
    *(f"data.{key}" for key in ("word_vectors", "dictionary")),
    *(f"training.{key}" for key in ("stage", "train_word_vectors", "text_learning_rate")),
)


def new_dual_encoder(
    config: RetrievalConfig, captions: Sequence[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Creates model and processor of a training config; see [`~hf_ngsan.tasks.new_captioner`] for the arguments.

    A new model has the vocabulary of the training captions or, with `model.text_pretrained`, of the text encoder.
    """
    guest = new_models.trained_guest(config, "retrieval", ONLY_OURS)
    if guest is not None:
        return guest
    fields, data, loss_fields = dict(config.model), config.data, asdict(config.contrastive)
    follows = {**new_models.FOLLOWS_FROM_DATA, **{name: f"contrastive.{name}" for name in loss_fields}}
    if "init_from" in fields:
        model, processor = new_models.trained_model(fields, "retrieval", follows, **loss_fields)
        learn_new_words(model, processor.tokenizer, captions, data.new_words)
        if data.image_size is not None and processor.image_processor is not None:
            processor.image_processor.size = SizeDict(height=data.image_size, width=data.image_size)
        return model, processor
    kind = new_models.new_config_class(fields, "retrieval", follows)
    new_models.set_feature_size(fields, kind, visual_feature_size, data.spec)
    tokenizer = new_text_tokenizer(fields, config, captions)
    model = new_models.new_model(kind(**fields, **loss_fields), "AutoModel")
    processor = new_models.new_processor(model, tokenizer, data.image_size)
    new_models.fill_word_vectors(model, tokenizer, data, "model.text_config.word_embedding_size")
    return model, processor


def new_text_tokenizer(fields: dict, config: RetrievalConfig, captions: Sequence[str]) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of the text encoder, or a new one for the captions; sets its size in `text_config`."""
    pretrained = fields.get("text_pretrained")
    if pretrained is not None:
        tokenizer = AutoTokenizer.from_pretrained(find_text_encoder(pretrained), trust_remote_code=False)
        # texts are truncated on request only, regardless of the saved tokenizer settings
        tokenizer.backend_tokenizer.no_truncation()
        for name in ("max_length", "stride", "truncation_strategy"):
            tokenizer.init_kwargs.pop(name, None)
        return tokenizer
    tokenizer = caption_rows.new_tokenizer(captions, config.data)
    words_only = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    tokenizer.backend_tokenizer.post_processor = words_only
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    fields["text_config"] = {**(fields.get("text_config") or {}), **sizes}
    return tokenizer


DIRECTIONS = ("image_to_text", "text_to_image")
SCORES = [f"{side}_{score}" for side in DIRECTIONS for score in (*(f"r{k}" for k in RECALL_AT), "median_rank")]


@dataclass(frozen=True)
class PairEmbeddings:
    """Embeddings of images and captions in one space, float32 of length 1."""

    images: np.ndarray  # (images, dimension)
    captions: np.ndarray  # (captions, dimension), image by image
    caption_images: np.ndarray  # (captions,), index of the image of each caption

    def scores(self, folds: int = 1) -> dict[str, float]:
        """Returns recalls, median ranks and rsum; see [`~hf_ngsan.metrics.retrieval.retrieval_metrics`]."""
        return retrieval_metrics(self.images @ self.captions.T, self.caption_images, folds=folds)

    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rank of the right answer to each image and to each caption, counted from 1."""
        return retrieval_ranks(self.images @ self.captions.T, self.caption_images)


def embed_pairs(
    model: PreTrainedModel,
    processor: Any,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
) -> PairEmbeddings:
    """Embeds every image and caption of a dataset once; all processes of an accelerator share the work."""

    def embed(indices: range) -> list[tuple[np.ndarray, np.ndarray]]:
        batch = take(rows, indices)
        numbers = [len(row["captions"]) for row in batch]
        texts = embed_texts(model, processor, [caption for row in batch for caption in row["captions"]])
        texts_by_image = np.split(texts, np.cumsum(numbers)[:-1])
        return list(zip(embed_images(model, processor, batch), texts_by_image, strict=True))

    pairs = map_sharded(embed, len(rows), batch_size, accelerator)
    images, captions = zip(*pairs, strict=True)
    numbers = [len(image_captions) for image_captions in captions]
    return PairEmbeddings(np.stack(images), np.concatenate(captions), np.repeat(np.arange(len(images)), numbers))


@dataclass(frozen=True)
class RetrievalEvaluation(Evaluation):
    """Retrieval scores of images and captions."""

    pairs: PairEmbeddings | None = None

    def save(self, path: str | os.PathLike) -> None:
        """Writes the rank of the right answer to each image and to each caption, atomically."""
        pairs: Any = self.pairs
        ranks = dict(zip(DIRECTIONS, (ranks.tolist() for ranks in pairs.ranks()), strict=True))
        write_output(path, json.dumps(ranks) + "\n")


class RetrievalTask(Task):
    """Trains a dual encoder from a [`RetrievalConfig`]."""

    config_class = RetrievalConfig
    unit = "images"
    model_noun = "a dual encoder"
    does = "finds images by texts, and texts by images"
    pipeline_tag = "zero-shot-image-classification"
    tags = ("image-text-retrieval",)
    config: RetrievalConfig
    guest: DualEncoder | None = None  # description of the model, if it is one of transformers
    augment: Callable | None = None  # random changes of the training rows
    encode_once = caption_rows.encode_once

    @property
    def greater_is_better(self) -> bool:
        return not self.metric.endswith("rank")

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        folds = self.config.evaluation.folds
        if len(rows) % folds:
            raise settings.ConfigError(f"evaluation.folds is {folds}, which does not divide {len(rows)} images.")
        return [*SCORES, "rsum"]

    def load_rows(self, split: str) -> Dataset:
        data = self.config.data
        return caption_rows.load_rows(data.spec, split, limit=data.limit, for_training=True)

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_dual_encoder(self.config, captions, caption_rows.visual_feature_size(rows))
        if is_guest(model.config):
            self.guest = dual_encoder_of(model, processor)
        else:
            new_models.report_vocabulary(self.config, processor.tokenizer, captions)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        rows = self.evaluation_rows(model, processor, rows)
        self.augment = caption_rows.augmentation_of(self.config, rows.column_names)
        if self.guest is None:
            remember_features(model, rows, self.config.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return caption_rows.rows_for(model, processor, rows, self.config.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns one stage, or the three stages of Park et al. 2020; each stage trains more modules."""
        config, words = self.config, self.config.training.train_word_vectors
        if self.guest is not None:
            losses_of = self.guest.pair_losses if config.training.own_loss else None
            objective = Contrastive(config.contrastive, losses_of, self.guest.loss_parameters)
            return [Stage("joint", objective, config.training)]
        objective, dual_encoder = Contrastive(config.contrastive), cast(Any, model)
        if not words:
            dual_encoder.get_input_embeddings().requires_grad_(False)
        if config.training.stage == "joint":
            return [Stage("joint", objective, config.training)]
        modules: list[nn.Module] = []
        stages = []
        for name, more in dual_encoder.modules_of_stages().items():
            modules = [*modules, *more]
            vision = name == "image" and dual_encoder.vision is not None and not dual_encoder.vision.config.frozen
            prepare = partial(train_only, modules=modules, vision=vision, words=words)
            schedule = getattr(config, f"{name}_stage")
            stages.append(Stage(name, objective, schedule, epoch_name=f"{name} epoch", prepare=prepare))
        return stages

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        number, seed = self.config.data.captions_per_image, self.config.training.seed
        make: Any = partial(pairs_of, processor, max_length=self.config.data.max_caption_length)
        if self.guest is not None:
            make = partial(pairs_of_guest, self.guest)
        return CaptionCollator(make, captions_per_image=number, seed=seed, augment=self.augment)

    def evaluate(  # type: ignore[override]  # the options are keyword arguments
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        rows: Dataset,
        accelerator: Accelerator,
        folds: int | None = None,
    ) -> RetrievalEvaluation:
        if folds is not None and (folds < 1 or len(rows) % folds):
            raise ValueError(f"--folds {folds}: {len(rows)} images cannot be divided into so many equal parts.")
        batch_size = self.config.evaluation.batch_size
        pairs = embed_pairs(model, processor, rows, accelerator, batch_size)
        scores = pairs.scores(folds or self.config.evaluation.folds)
        report = {"images": len(pairs.images), "captions": len(pairs.captions), "all": scores}
        if folds is not None:
            report["all"] = pairs.scores()
            report[f"mean of {folds} folds"] = scores
        return RetrievalEvaluation(scores, report=report, pairs=pairs)

    @classmethod
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        folds = "also compute the mean over N equal parts of the split; 5 parts of 5,000 images are the 1K protocol"
        parser.add_argument("--folds", type=int, metavar="N", help=folds)

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return {"folds": options.get("folds") or 1}

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return caption_rows.captions_identity(model, processor, rows)


def pairs_of(processor: Any, captions: Sequence[Sequence[str | None]], max_length: int, **visual: Any) -> dict:
    """Returns a batch of images or features with an equal number of captions each."""
    texts = with_words(processor.tokenizer, equal_numbers(captions))
    return processor(text=texts, truncation=True, max_length=max_length, **visual)


def pairs_of_guest(guest: DualEncoder, images: Sequence[Any], captions: Sequence[Sequence[str | None]]) -> dict:
    return {**guest.image_inputs(images), **guest.text_inputs(equal_numbers(captions))}


def equal_numbers(captions: Sequence[Sequence[str | None]]) -> list[str]:
    """Returns the same number of captions for each image; a missing one (`None`) repeats another of the image."""
    texts = []
    for image_captions in captions:
        real = [caption for caption in image_captions if caption is not None]
        texts += [real[place % len(real)] for place in range(len(image_captions))]
    return texts


def train_only(model: Any, modules: Sequence[nn.Module], vision: bool, words: bool) -> None:
    """Freezes a dual encoder except for `modules` and, on request, its vision backbone and word vectors."""
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    if not words:
        model.get_input_embeddings().requires_grad_(False)
    if model.vision is not None:
        model.vision.requires_grad_(vision)
    model.train(model.training)  # this puts a frozen backbone into evaluation mode
