"""Image-text retrieval: a dual encoder is trained to find the image of a caption, and the captions of an image."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accelerate import Accelerator
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, ProcessorMixin

from ...data import CaptionCollator
from ...data.vocabulary import with_words
from ...guests.dual_encoders import DualEncoder, dual_encoder_of
from ...io.argument_types import positive_int, user_path
from ...io.files import write_output
from ...loading.models import is_guest
from ...loading.provenance import remember_features
from ...metrics.retrieval import RECALL_AT
from ...training.objectives.contrastive import Contrastive
from ...training.recipe import RecipeError
from ...training.task import Evaluation, Stage, Task
from ..caption_rows import captions_identity, features_identity, load_rows, rows_for, visual_feature_size
from ..image_augmentation import augmentation_of, check_augmentation
from ..new_models import report_vocabulary
from .build import new_dual_encoder
from .evaluate import PairEmbeddings, embed_pairs, measure_head_diversity
from .positives import read_positives
from .recipe import RetrievalRecipe

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
    """Trains a dual encoder by a [`RetrievalRecipe`]."""

    recipe_class = RetrievalRecipe
    unit = "images"
    model_noun = "a dual encoder"
    does = "finds images by texts, and texts by images"
    pipeline_tag = "zero-shot-image-classification"
    tags = ("image-text-retrieval",)
    recipe: RetrievalRecipe
    guest: DualEncoder | None = None
    """The dual encoder of transformers that is trained, if it is one."""

    @property
    def greater_is_better(self) -> bool:
        return not self.metric.endswith("rank")

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        if len(rows) % self.recipe.evaluation.folds:
            raise RecipeError(
                f"evaluation.folds is {self.recipe.evaluation.folds}, but the {len(rows)} images of "
                f"{self.recipe.data.spec}, split {self.recipe.data.validation_split}, cannot be divided equally."
            )
        return [*SCORES, "rsum"]

    def load_rows(self, split: str) -> Dataset:
        return load_rows(self.recipe.data.spec, split, limit=self.recipe.data.limit, for_training=True)

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_dual_encoder(self.recipe, captions, visual_feature_size(rows))
        if is_guest(model.config):
            self.guest = dual_encoder_of(model, processor)
        else:
            report_vocabulary(processor.tokenizer, captions)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        rows = self.evaluation_rows(model, processor, rows)
        check_augmentation(self.recipe, rows.column_names)
        if self.guest is None:
            remember_features(model, rows, self.recipe.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return rows_for(model, processor, rows, self.recipe.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns one stage, or the three stages of Park et al. 2020, each of which trains more modules."""
        recipe = self.recipe
        if self.guest is not None:
            own = recipe.training.own_loss
            if own and type(self.guest).pair_losses is DualEncoder.pair_losses and not hasattr(model, "logit_scale"):
                raise RecipeError(
                    f"The loss of a {type(model).__name__} is not known, as it has no logit_scale; set "
                    "training.own_loss=false, or register a description with pair_losses (hf_ngsan.guests)."
                )
            losses_of = self.guest.pair_losses if own else None
            objective = Contrastive(recipe.contrastive, losses_of, self.guest.loss_parameters)
            return [Stage("joint", objective, recipe.training)]
        objective = Contrastive(recipe.contrastive)
        dual_encoder: Any = model
        if not recipe.training.train_word_vectors:
            dual_encoder.get_input_embeddings().requires_grad_(False)
        if recipe.training.stage == "joint":
            return [Stage("joint", objective, recipe.training)]
        projection = [dual_encoder.image_projection]
        text = [*projection, dual_encoder.text, dual_encoder.text_projection, dual_encoder.text_pooling]
        image = [*text, dual_encoder.image_states, dual_encoder.image_pooling]
        trains_vision = dual_encoder.vision is not None and not dual_encoder.vision.config.frozen
        words = recipe.training.train_word_vectors
        stages = []
        for name, settings, modules, vision in (
            ("projection", recipe.projection_stage, projection, False),
            ("text", recipe.text_stage, text, False),
            ("image", recipe.image_stage, image, trains_vision),
        ):
            present = [module for module in modules if module is not None]
            prepare = partial(train_only, modules=present, vision=vision, words=words)
            stages.append(Stage(name, objective, settings, epoch_name=f"{name} epoch", prepare=prepare))
        return stages

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.recipe.data
        if self.guest is None:
            make = partial(pairs_of, processor, max_length=data.max_caption_length)
        else:
            make = partial(pairs_of_guest, self.guest)
        return CaptionCollator(
            make,
            captions_per_image=data.captions_per_image,
            seed=self.recipe.training.seed,
            augment=augmentation_of(self.recipe),
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
        if folds is not None and len(rows) % folds:
            raise ValueError(f"--folds {folds}: {len(rows)} images cannot be divided into so many equal parts.")
        right_answers = None
        if positives is not None:
            image_to_text, text_to_image, caption_file = positives
            right_answers = read_positives(image_to_text, text_to_image, caption_file, rows)
        batch_size = self.recipe.evaluation.batch_size
        pairs = embed_pairs(model, processor, rows, accelerator, batch_size)
        scores = pairs.scores(folds or self.recipe.evaluation.folds)
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
            type=positive_int,
            metavar="N",
            help="also the mean over N equal parts of the split; 5 of 5,000 images is the 1K protocol",
        )
        parser.add_argument(
            "--positives",
            nargs=3,
            type=user_path,
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
    """Returns a batch of images or features with an equal number of captions each.

    A caption that an image lacks is `None`; one of its other captions is repeated instead.
    """
    texts = with_words(processor.tokenizer, equal_numbers(captions))
    return processor(text=texts, truncation=True, max_length=max_length, **visual)


def pairs_of_guest(guest: DualEncoder, images: Sequence[Any], captions: Sequence[Sequence[str | None]]) -> dict:
    """Returns a batch of images with an equal number of captions each, for a dual encoder of transformers."""
    return {**guest.image_inputs(images), **guest.text_inputs(equal_numbers(captions))}


def equal_numbers(captions: Sequence[Sequence[str | None]]) -> list[str]:
    """Returns as many captions of each image; where it lacks one, another of its own is repeated."""
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
