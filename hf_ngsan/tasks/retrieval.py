"""Image-text retrieval: a dual encoder is trained to find the image of a caption, and the captions of an image."""

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

from accelerate import Accelerator
from datasets import Dataset
from tokenizers import processors
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_utils import SizeDict

from ..data import CaptionCollator, build_tokenizer
from ..data.vocabulary import with_words
from ..guests.dual_encoders import DualEncoder, dual_encoder_of
from ..io.files import write_output
from ..io.messages import one_sentence
from ..loading.models import is_guest
from ..loading.provenance import remember_features
from ..metrics.retrieval import RECALL_AT
from ..models.text_encoders import find_text_encoder
from ..training.config import (
    ConfigError,
    EvaluationSettings,
    ScheduleSettings,
    TrainingConfig,
    TrainingSettings,
    another_default,
    setting,
)
from ..training.objectives.contrastive import Contrastive, ContrastiveSettings
from ..training.task import Evaluation, Stage, Task
from .caption_rows import (
    CaptioningDataSettings,
    captions_identity,
    features_identity,
    load_rows,
    rows_for,
    visual_feature_size,
)
from .image_augmentation import AugmentationSettings, augmentation_of, check_augmentation
from .new_models import (
    FOLLOWS_FROM_DATA,
    check_fields,
    config_class_of,
    fill_word_vectors,
    new_model,
    new_processor,
    report_vocabulary,
    set_feature_size,
    trained_guest,
    trained_model,
)
from .retrieval_search import PairEmbeddings, embed_pairs, measure_head_diversity, read_positives


@dataclass(frozen=True)
class RetrievalDataSettings(CaptioningDataSettings):
    """Images, words and captions for training."""

    captions_per_image: int = another_default(CaptioningDataSettings, "captions_per_image", 1)
    max_caption_length: int = another_default(CaptioningDataSettings, "max_caption_length", 40)
    word_vectors: str | None = setting(
        None,
        "file that word vectors begin with: .txt, a word and its numbers a line, or .npy with data.dictionary; null = "
        "random ones",
    )
    dictionary: str | None = setting(None, "words of data.word_vectors, where that is an .npy file, one a line")


@dataclass(frozen=True)
class RetrievalTrainingSettings(TrainingSettings):
    """Optimization; the schedule is for joint training."""

    stage: str = setting(
        "joint",
        "joint = all weights at once, staged = the last image layer, then the text encoder too, then everything, each "
        "with a section of its own",
        choices=("joint", "staged"),
    )
    own_loss: bool = setting(
        True, "models of transformers: their own loss, over softmax or sigmoid; false = that of section contrastive"
    )
    train_word_vectors: bool = setting(True, "whether word vectors are trained; false keeps those of a file")
    text_learning_rate: float | None = setting(
        None, "peak learning rate of a text encoder of transformers; null = learning_rate", minimum=0.0
    )


@dataclass(frozen=True)
class ProjectionStage(ScheduleSettings):
    """Stage 1 of Park et al. 2020, section 3.5: only the last projection of the image encoder."""

    epochs: int = another_default(ScheduleSettings, "epochs", 4)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.005)
    schedule: str = another_default(ScheduleSettings, "schedule", "constant")
    warmup_epochs: int = another_default(ScheduleSettings, "warmup_epochs", 0)


@dataclass(frozen=True)
class TextStage(ProjectionStage):
    """Stage 2: also the text encoder."""

    epochs: int = another_default(ScheduleSettings, "epochs", 15)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.0005)


@dataclass(frozen=True)
class ImageStage(ProjectionStage):
    """Stage 3: everything, the vision encoder included."""

    epochs: int = another_default(ScheduleSettings, "epochs", 40)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.00005)


@dataclass(frozen=True)
class RetrievalContrastiveSettings(ContrastiveSettings):
    """Comparison of images and captions."""

    diversity_weight: float = another_default(ContrastiveSettings, "diversity_weight", 0.1)


@dataclass(frozen=True)
class RetrievalEvaluationSettings(EvaluationSettings):
    """Evaluation and the choice of the best model."""

    metric: str = setting("rsum", "score of the validation split that chooses the best model")
    folds: int = setting(
        1, "equal parts of the split whose scores are averaged; 5 on 5,000 images is the 1K protocol", minimum=1
    )


@dataclass(frozen=True)
class RetrievalConfig(TrainingConfig):
    """The training config of a dual encoder.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained dual encoder, and
            the configuration fields to change in it. The vocabulary and `visual_feature_size` follow from the data, the
            loss from section `contrastive`.
        data, augmentation, contrastive, training, projection_stage, text_stage, image_stage, evaluation: the other
            sections.
    """

    default_model_type: ClassVar[str] = "mhsan"

    data: RetrievalDataSettings = field(default_factory=RetrievalDataSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
    contrastive: RetrievalContrastiveSettings = field(default_factory=RetrievalContrastiveSettings)
    training: RetrievalTrainingSettings = field(default_factory=RetrievalTrainingSettings)
    projection_stage: ProjectionStage = field(default_factory=ProjectionStage)
    text_stage: TextStage = field(default_factory=TextStage)
    image_stage: ImageStage = field(default_factory=ImageStage)
    evaluation: RetrievalEvaluationSettings = field(default_factory=RetrievalEvaluationSettings)


ONLY_OURS = (
    "data.min_word_count",
    "data.max_caption_length",
    "data.image_size",
    "data.word_vectors",
    "data.dictionary",
    "training.stage",
    "training.train_word_vectors",
    "training.text_learning_rate",
)
"""Settings that dual encoders of transformers do not have."""


def new_dual_encoder(
    config: RetrievalConfig, captions: Iterable[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor of a training config.

    With `model.init_from` both come from a trained dual encoder, its vocabulary included, and the other fields of the
    section change its configuration. A new one has the vocabulary of the training captions or, with
    `model.text_pretrained`, that of the text encoder.

    Args:
        config: sections `model`, `data` and `contrastive` are used.
        captions: every training caption.
        visual_feature_size: dimension D of the data's features, for a model without a vision encoder.
    """
    guest = trained_guest(config, "retrieval", ONLY_OURS)
    if guest is not None:
        return guest
    fields, data, of_loss = dict(config.model), config.data, asdict(config.contrastive)
    follows = {**FOLLOWS_FROM_DATA, **{name: f"contrastive.{name}" for name in of_loss}}
    text = fields.get("text_config")
    for key in ("vocab_size", "pad_token_id"):
        if isinstance(text, dict) and key in text:
            raise ConfigError(f"model.text_config.{key} follows from the training captions; leave it out.")
    if "init_from" in fields:
        model, processor = trained_model(fields, "retrieval", follows, **of_loss)
        if data.image_size is not None and processor.image_processor is not None:
            processor.image_processor.size = SizeDict(height=data.image_size, width=data.image_size)
        return model, processor
    kind = config_class_of(fields.pop("model_type"), "retrieval")
    check_fields(fields, follows)
    set_feature_size(fields, kind, visual_feature_size, data.spec)
    tokenizer = new_tokenizer(fields, config, captions)
    model = new_model(kind(**fields, **of_loss), "AutoModel")
    processor = new_processor(model, tokenizer, data.image_size)
    if data.word_vectors is not None:
        size_key = "model.text_config.word_embedding_size"
        fill_word_vectors(model, tokenizer, data.word_vectors, data.dictionary, size_key)
    return model, processor


def new_tokenizer(fields: dict, config: RetrievalConfig, captions: Iterable[str]) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of the text encoder, or one of the captions' words, with its size set in `text_config`."""
    pretrained = fields.get("text_pretrained")
    if pretrained is not None:
        try:
            tokenizer = AutoTokenizer.from_pretrained(find_text_encoder(pretrained), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"model.text_pretrained: {pretrained} has no tokenizer ({one_sentence(error)})."
            ) from error
        # texts are cut only where that is asked for, whatever was saved with the tokenizer
        tokenizer.backend_tokenizer.no_truncation()
        for setting in ("max_length", "stride", "truncation_strategy"):
            tokenizer.init_kwargs.pop(setting, None)
        return tokenizer
    tokenizer = build_tokenizer(captions, min_count=config.data.min_word_count)
    words_only = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    tokenizer.backend_tokenizer.post_processor = words_only
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    fields["text_config"] = {**(fields.get("text_config") or {}), **sizes}
    return tokenizer


DIRECTIONS = ("image_to_text", "text_to_image")
SCORES = [
    f"{direction}_{score}" for direction in DIRECTIONS for score in (*(f"r{k}" for k in RECALL_AT), "median_rank")
]


@dataclass(frozen=True)
class RetrievalEvaluation(Evaluation):
    """Retrieval scores of images and captions; `save` computes the ranks of right answers."""

    pairs: PairEmbeddings | None = None

    def save(self, path: str | os.PathLike) -> None:
        """Writes the rank of the right answer to each image and to each caption, whole or not at all."""
        pairs: Any = self.pairs
        ranks = dict(zip(DIRECTIONS, (ranks.tolist() for ranks in pairs.ranks()), strict=True))
        write_output(path, json.dumps(ranks) + "\n")


class RetrievalTask(Task):
    """Trains a dual encoder by a [`RetrievalConfig`]."""

    config_class = RetrievalConfig
    unit = "images"
    model_noun = "a dual encoder"
    does = "finds images by texts, and texts by images"
    pipeline_tag = "zero-shot-image-classification"
    tags = ("image-text-retrieval",)
    config: RetrievalConfig
    guest: DualEncoder | None = None
    """The dual encoder of transformers that is trained, if it is one."""

    @property
    def greater_is_better(self) -> bool:
        return not self.metric.endswith("rank")

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        if len(rows) % self.config.evaluation.folds:
            raise ConfigError(
                f"evaluation.folds is {self.config.evaluation.folds}, but the {len(rows)} images of "
                f"{self.config.data.spec}, split {self.config.data.validation_split}, cannot be divided equally."
            )
        return [*SCORES, "rsum"]

    def load_rows(self, split: str) -> Dataset:
        return load_rows(self.config.data.spec, split, limit=self.config.data.limit, for_training=True)

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_dual_encoder(self.config, captions, visual_feature_size(rows))
        if is_guest(model.config):
            self.guest = dual_encoder_of(model, processor)
        else:
            report_vocabulary(processor.tokenizer, captions)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        rows = self.evaluation_rows(model, processor, rows)
        check_augmentation(self.config, rows.column_names)
        if self.guest is None:
            remember_features(model, rows, self.config.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return rows_for(model, processor, rows, self.config.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns one stage, or the three stages of Park et al. 2020, each of which trains more modules."""
        config = self.config
        if self.guest is not None:
            own = config.training.own_loss
            if own and type(self.guest).pair_losses is DualEncoder.pair_losses and not hasattr(model, "logit_scale"):
                raise ConfigError(
                    f"The loss of a {type(model).__name__} is not known, as it has no logit_scale; set "
                    "training.own_loss=false, or register a description with pair_losses (hf_ngsan.guests)."
                )
            losses_of = self.guest.pair_losses if own else None
            objective = Contrastive(config.contrastive, losses_of, self.guest.loss_parameters)
            return [Stage("joint", objective, config.training)]
        objective = Contrastive(config.contrastive)
        dual_encoder: Any = model
        if not config.training.train_word_vectors:
            dual_encoder.get_input_embeddings().requires_grad_(False)
        if config.training.stage == "joint":
            return [Stage("joint", objective, config.training)]
        projection = [dual_encoder.image_projection]
        text = [*projection, dual_encoder.text, dual_encoder.text_projection, dual_encoder.text_pooling]
        image = [*text, dual_encoder.image_states, dual_encoder.image_pooling]
        trains_vision = dual_encoder.vision is not None and not dual_encoder.vision.config.frozen

        def stage(name: str, settings: ScheduleSettings, modules: list, vision: bool = False) -> Stage:
            present, words = [module for module in modules if module is not None], config.training.train_word_vectors
            prepare = partial(train_only, modules=present, vision=vision, words=words)
            return Stage(name, objective, settings, epoch_name=f"{name} epoch", prepare=prepare)

        return [
            stage("projection", config.projection_stage, projection),
            stage("text", config.text_stage, text),
            stage("image", config.image_stage, image, trains_vision),
        ]

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.config.data
        if self.guest is None:
            make = partial(pairs_of, processor, max_length=data.max_caption_length)
        else:
            make = partial(pairs_of_guest, self.guest)
        return CaptionCollator(
            make,
            captions_per_image=data.captions_per_image,
            seed=self.config.training.seed,
            augment=augmentation_of(self.config),
        )

    def evaluate(  # type: ignore[override]  # its options by their names
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        rows: Dataset,
        accelerator: Accelerator,
        folds: int | None = None,
        positives: Sequence[str] | None = None,
        head_diversity: bool = False,
    ) -> RetrievalEvaluation:
        """Scores the retrieval of images and captions; see [`RetrievalTask.add_evaluation_options`]."""
        if head_diversity and (is_guest(model.config) or not isinstance(model, PreTrainedModel)):
            raise ValueError(
                f"--head-diversity needs a dual encoder of hf-ngsan; this is a {model.config.model_type} model."
            )
        if folds is not None and (folds < 1 or len(rows) % folds):
            raise ValueError(f"--folds {folds}: {len(rows)} images cannot be divided into so many equal parts.")
        right_answers = None
        if positives is not None:
            image_to_text, text_to_image, caption_file = positives
            right_answers = read_positives(image_to_text, text_to_image, caption_file, rows)
        batch_size = self.config.evaluation.batch_size
        pairs = embed_pairs(model, processor, rows, accelerator, batch_size)
        scores = pairs.scores(folds or self.config.evaluation.folds)
        report = {"images": len(pairs.images), "captions": len(pairs.captions), "all": scores}
        if folds is not None:
            report["all"] = pairs.scores()
            report[f"mean of {folds} folds"] = scores
        if right_answers is not None:
            report["all right answers"] = {
                "images with positives": len(right_answers.image_to_text),
                "captions with positives": len(right_answers.text_to_image),
                **pairs.map_at_r(right_answers),
            }
        if head_diversity:
            report["heads"] = measure_head_diversity(model, processor, rows, accelerator, batch_size)
        return RetrievalEvaluation(scores, report=report, pairs=pairs)

    @classmethod
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--folds",
            type=int,
            metavar="N",
            help="also the mean over N equal parts of the split; 5 of 5,000 images is the 1K protocol",
        )
        parser.add_argument(
            "--positives",
            nargs=3,
            type=os.path.expanduser,
            metavar=("I2T.json", "T2I.json", "CAPTIONS.json"),
            help="also mAP@R with all correct matches: eccv_image_to_caption.json and eccv_caption_to_image.json of "
            "ECCV Caption, and the COCO file with the ids of the captions",
        )
        parser.add_argument("--head-diversity", action="store_true", help="also the diversity of the attention heads")

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return {"folds": options.get("folds") or 1}

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return captions_identity(rows, processor.tokenizer) | features_identity(model)


def pairs_of(processor: Any, captions: Sequence[Sequence[str | None]], max_length: int, **visual: Any) -> dict:
    """Returns a batch of images or features with an equal number of captions each."""
    texts = with_words(processor.tokenizer, equal_numbers(captions))
    return processor(text=texts, truncation=True, max_length=max_length, **visual)


def pairs_of_guest(guest: DualEncoder, images: Sequence[Any], captions: Sequence[Sequence[str | None]]) -> dict:
    """Returns a batch of images with an equal number of captions each, for a dual encoder of transformers."""
    return {**guest.image_inputs(images), **guest.text_inputs(equal_numbers(captions))}


def equal_numbers(captions: Sequence[Sequence[str | None]]) -> list[str]:
    """Returns as many captions of each image; where it lacks one (`None`), another of its own is repeated."""
    texts = []
    for of_image in captions:
        own = [caption for caption in of_image if caption is not None]
        texts += [own[place % len(own)] for place in range(len(of_image))]
    return texts


def train_only(model: Any, modules: Sequence[nn.Module], vision: bool, words: bool) -> None:
    """Freezes a dual encoder, except some modules and, if they are trained, its vision backbone and word vectors.

    A frozen backbone stays in evaluation mode.
    """
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)
    if not words:
        model.get_input_embeddings().requires_grad_(False)
    if model.vision is not None:
        model.vision.requires_grad_(vision)
    model.train(model.training)  # a frozen backbone goes into evaluation mode
