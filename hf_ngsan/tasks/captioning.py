"""Image captioning: the task, from rows to scores against references."""

import argparse
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import CaptionCollator, extra_scores_of
from ..guests.captioners import Guest, guest_of
from ..guests.dual_encoders import dual_encoder_of
from ..languages import ENGLISH, caption_units, language_of
from ..loading.models import is_guest, load_model
from ..loading.provenance import remember_features
from ..metrics import CaptionMetrics, CiderD, DocumentFrequency
from ..metrics.clip_score import PROMPT, WEIGHT, ClipScore
from ..metrics.diagnostics import BAD_ENDINGS
from ..models.modeling_base import vision_encoders
from ..training.batches import take
from ..training.config import ConfigError
from ..training.objectives import self_critical_rewards as rewards
from ..training.objectives.distillation import OnPolicyDistillation
from ..training.objectives.policy import Policy
from ..training.objectives.self_critical import SelfCritical
from ..training.objectives.teacher_forcing import Distillation, TeacherForcing
from ..training.task import InputRoles, Stage, Task
from . import caption_rows
from .captioning_generation import CaptionEvaluation, evaluate_captioner, load_captioners
from .captioning_models import GuestSelfCritical, GuestTeacherForcing, new_captioner
from .new_models import checked_generation, generation_settings, report_vocabulary
from .new_words import fit_new_words
from .settings import CaptioningConfig

logger = logging.getLogger(__name__)


CONSENSUS_WEIGHTS = 0.05, 3.0  # our choice: every caption counts, and no caption dominates those of its image


def draw_regions(config: Any, shape: tuple[int, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    corners = torch.rand(*shape, 2, generator=generator) * 0.6
    boxes = torch.cat([corners, corners + 0.1 + 0.3 * torch.rand(*shape, 2, generator=generator)], dim=-1)
    features = torch.randn(*shape, config.visual_feature_size, generator=generator)
    return {"visual_features": features, "visual_boxes": boxes}


class CaptioningTask(Task):
    """Trains a captioner of images, regions or video frames from a [`CaptioningConfig`]."""

    config_class = CaptioningConfig
    unit = "images"
    model_noun = "a captioner"
    does = "captions images"
    pipeline_tag = "image-to-text"
    tags = ("image-captioning",)
    can_ensemble = True
    writes_text = True
    input_roles = InputRoles(
        words="decoder_input_ids",
        word_mask="decoder_attention_mask",
        source=("visual_features", "visual_boxes"),
        source_mask="attention_mask",
        source_name="visual tokens",
        rows_name="images",
        source_is_a_set=True,
        draw_source=draw_regions,
    )
    config: CaptioningConfig
    guest: Guest | None = None  # description of the captioner, if it is one of transformers
    augment: Callable | None = None  # random changes of the training rows
    encode_once = caption_rows.encode_once

    @property
    def distils(self) -> bool:
        return self.config.training.stage == "distill"

    @property
    def training_config(self) -> CaptioningConfig:
        spec = self.config.distillation.images if self.distils else None
        return self.config if spec is None else replace(self.config, data=replace(self.config.data, spec=spec))

    def load_rows(self, split: str) -> Dataset:
        data = self.config.data
        if self.distils and split == data.train_split:
            return caption_rows.load_rows(self.training_config.data.spec, split, False, data.limit, for_training=True)
        sets_aside = not self.distils or self.config.distillation.images is None  # replaces a missing validation split
        return caption_rows.load_rows(data.spec, split, limit=data.limit, for_training=sets_aside)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        first = rows.take(2)
        if len(first) < 2:
            raise ConfigError(f"{self.config.data.spec} has only one validation image; CIDEr-D needs two or more.")
        references = list(map(list, first["captions"]))
        known = list(CaptionMetrics().compute(predictions=[texts[0] for texts in references], references=references))
        extra_scores = extra_scores_of(self.config.data.spec)
        return known if extra_scores is None else [*known, *extra_scores.names]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        if self.distils and not (self.config.training.teachers and "init_from" in self.config.model):
            raise ConfigError("The stage distill needs model.init_from=DIR and training.teachers=[DIR, DIR].")
        captions = [] if self.distils else [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_captioner(self.config, captions, caption_rows.visual_feature_size(rows))
        if is_guest(model.config):
            self.guest = guest_of(model, processor)
        elif not self.distils:
            report_vocabulary(self.config, processor.tokenizer, captions)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        power, config = self.config.training.consensus_power, self.training_config
        if power and not self.distils:
            weighted = rows.add_column("caption_weights", consensus_weights(list(rows["captions"]), power))
            form = {**rows.format, **rows.format["format_kwargs"], "output_all_columns": True}
            del form["format_kwargs"]
            rows = weighted.with_format(**form)  # add_column of datasets 5.2 drops it
        rows = caption_rows.rows_for(model, processor, rows, config.data.spec)
        self.augment = caption_rows.augmentation_of(config, rows.column_names)
        if self.guest is None:
            remember_features(model, rows, config.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return caption_rows.rows_for(model, processor, rows, self.config.data.spec)

    def begin(self, model: Any, processor: Any, rows: Dataset) -> None:
        if getattr(model, "new_words", None):
            collate, size, places = self.collator(processor), self.config.training.batch_size, range(len(rows))[:2000]
            batches = (collate(take(rows, places[start : start + size])) for start in places[::size])
            fit_new_words(model, processor.tokenizer, batches)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        training, stages = self.config.training, []
        if training.teachers and self.guest is not None:
            raise ConfigError("training.teachers is for captioners of this package, not for models of transformers.")
        if self.distils:
            return [self.distillation(model, processor)]
        if training.stage != "scst":
            stages.append(Stage("xe", self.teacher_forcing(processor), training))
        if training.stage != "xe":
            objective = self.self_critical(model, processor, rows)
            settings = self.config.self_critical
            prepare = partial(freeze_encoder, guest=self.guest) if settings.freeze_encoder else None
            stages.append(Stage("scst", objective, settings, epoch_name="self-critical epoch", prepare=prepare))
        return stages

    def teacher_forcing(self, processor: Any) -> TeacherForcing:
        training = self.config.training
        if self.guest is not None:
            return GuestTeacherForcing(self.guest, training.label_smoothing)
        teacher, distillation = self.teacher(processor), None
        if teacher is not None:
            distillation = Distillation(teacher, training.teacher_weight, training.teacher_temperature)
        unknown = processor.tokenizer.unk_token_id
        return TeacherForcing(training.label_smoothing or 0.0, training.word_dropout, unknown, distillation)

    def distillation(self, model: PreTrainedModel, processor: ProcessorMixin) -> Stage:
        settings, temperature = self.config.distillation, self.config.training.teacher_temperature
        policy = Policy.of(model, temperature=settings.temperature, max_new_tokens=settings.max_new_tokens)
        objective = OnPolicyDistillation(self.teacher(processor), policy, settings.samples_per_image, temperature)
        return Stage("distill", objective, settings, epoch_name="distillation epoch")

    def teacher(self, processor: Any) -> PreTrainedModel | None:
        names = self.config.training.teachers
        if not names:
            return None
        teacher, teacher_processor = load_captioners(names)
        if teacher_processor.tokenizer.get_vocab() != processor.tokenizer.get_vocab():
            other = f"training.teachers has {names[0]}, which has another vocabulary than this captioner"
            raise ConfigError(f"{other}; data.new_words=null keeps that of model.init_from.")
        return teacher.requires_grad_(False)

    def self_critical(self, model: PreTrainedModel, processor: Any, rows: Dataset) -> SelfCritical:
        settings, tokenizer, references = self.config.self_critical, processor.tokenizer, list(rows["captions"])
        if self.config.training.stage == "scst" and "init_from" not in self.config.model:
            raise ConfigError("The stage scst needs a trained captioner: set model.init_from=DIR, or --stage auto.")
        if settings.samples_per_image < 2 and settings.baseline != "greedy":
            raise ConfigError(f"self_critical.baseline={settings.baseline} needs self_critical.samples_per_image >= 2.")
        if settings.decoding == "beam" and (settings.temperature, settings.top_p) != (1, 1):
            raise ConfigError("self_critical.decoding=beam needs self_critical.temperature=1 and top_p=1.")
        weights = {name: getattr(settings, f"{name}_weight") for name in ("cider_d", "bleu_4", "meteor")}
        options: dict[str, Any] = {"weights": weights, "functions": {}, "end_token": settings.end_token_in_reward}
        if (name := settings.reward_function) is not None:
            options["functions"] = {name: (rewards.load_reward_function(name), settings.reward_function_weight)}
        if settings.clip_score_model is not None:
            weights["clip_score"] = settings.clip_score_weight
            options["clip_score"] = rewards.ClipReward(
                load_clip_score(settings.clip_score_model, rows, truncate=True), rows
            )
        if self.guest is not None:
            options["language"] = self.config.data.language
            reward = rewards.TextRewards(references, self.guest.text_of, self.guest.end_token_id, **options)
            return GuestSelfCritical(self.guest, reward, settings)
        policy = Policy.of(
            model, temperature=settings.temperature, top_p=settings.top_p, max_new_tokens=settings.max_new_tokens
        )
        if tokenizer.init_kwargs.get("units"):  # rewards count words, with every kind of tokens
            decode = partial(tokenizer.batch_decode, skip_special_tokens=True)
            options["language"] = language_of(tokenizer)
            reward = rewards.TextRewards(references, decode, tokenizer.eos_token_id, **options)
            return SelfCritical(reward, settings, policy)
        vocabulary = tokenizer.get_vocab()
        is_english = caption_units(language_of(tokenizer)) == "ptb"
        bad_endings = {vocabulary[word] for word in BAD_ENDINGS & vocabulary.keys()} if is_english else set()
        return SelfCritical(rewards.CaptionRewards(references, tokenizer, **options), settings, policy, bad_endings)

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.config.data
        return CaptionCollator(
            processor if self.guest is None else self.guest.batch,
            captions_per_image=data.captions_per_image,
            max_caption_length=data.max_caption_length,
            seed=self.config.training.seed,
            augment=self.augment,
        )

    def evaluate(
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        rows: Dataset,
        accelerator: Accelerator,
        metrics: Sequence[str] | None = None,
        language: str | None = None,
        clip_score: str | None = None,
        truncate_captions: bool = False,
        **generate_arguments: Any,
    ) -> CaptionEvaluation:
        options = checked_generation(generate_arguments, model.generation_config)
        clip = None
        if clip_score is not None:
            clip = load_clip_score(clip_score, rows, truncate_captions, accelerator.device)
        if language is None and self.guest is not None:
            language = self.config.data.language
        options |= {"metrics": metrics, "language": language, "extra_scores": extra_scores_of(self.config.data.spec)}
        batch_size = self.config.evaluation.batch_size
        evaluation = evaluate_captioner(model, processor, rows, accelerator, batch_size=batch_size, **options)
        if clip is not None and accelerator.is_main_process:
            references = [list(captions) for captions in rows["captions"]]
            scores = clip.compute(predictions=evaluation.captions, images=rows["image"], references=references)
            evaluation = replace(evaluation, scores={**evaluation.scores, **scores})
        return evaluation

    @classmethod
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        known = "metrics: cider_d, bleu, rouge_l, cider, meteor (needs hf-ngsan[eval]); default: the first four"
        parser.add_argument("--metrics", nargs="+", metavar="METRIC", help=known)
        language = "language of the captions, such as de (default: the language of the model's tokenizer)"
        parser.add_argument("--language", metavar="CODE", help=language)
        clip_score = "also compute CLIPScore and RefCLIPScore with this dual encoder; the dataset needs images"
        parser.add_argument("--clip-score", type=os.path.expanduser, metavar="DUAL_ENCODER", help=clip_score)
        cut = "with --clip-score, truncate captions that are too long for the dual encoder (default: an error)"
        parser.add_argument("--truncate-captions", action="store_true", help=cut)

    @classmethod
    def load(cls, names: Sequence[str], task: str) -> tuple[PreTrainedModel, Any]:
        return load_captioners(names)

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        settings = generation_settings(generation, options)
        if metric in ("clip_score", "ref_clip_score"):
            long = "cut" if options.get("truncate_captions") else "refused"
            encoder = os.path.basename(os.path.normpath(options["clip_score"]))
            return {**settings, "encoder": encoder, "prompt": PROMPT, "w": WEIGHT, "long": long}
        settings["tok"] = caption_units(options.get("language") or ENGLISH)
        if metric == "meteor":
            settings["meteor"] = "1.5-python"
        if metric in ("cider_d", "cider"):
            settings |= {"df": "references", "end": "excluded"}
        return settings

    @classmethod
    def card_usage(cls, model: PreTrainedModel, place: str) -> list[str] | None:
        config: Any = model.config
        imports, use = ["from transformers import pipeline"], ['print(captioner("photo.jpg"))']
        if is_guest(config):
            imports.insert(0, "import hf_ngsan  # registers the pipeline")
        elif "image-to-text" not in getattr(config, "remote_pipelines", {}):
            return None
        else:
            place = f"{place}, trust_remote_code=True"
            if getattr(config.vision_config, "kind", None) == "frames":
                use = ['print(captioner("clip.mp4"))']
            elif config.vision_config is None:
                size = config.visual_feature_size
                use = [
                    f"# features (N, {size}) and boxes (N, 4) of the regions of an image: x1, y1, x2, y2 within [0, 1]",
                    'print(captioner({"visual_features": features, "visual_boxes": boxes}))',
                ]
        return [*imports, "", f'captioner = pipeline("image-to-text", model={place})', *use]

    @classmethod
    def card_notes(cls, training_config: Mapping[str, Mapping]) -> list[str]:
        critical = training_config.get("self_critical") or {}
        stage = training_config.get("training", {}).get("stage")
        if stage not in ("auto", "scst") or "end_token_in_reward" not in critical:
            return []
        part = "counts" if critical["end_token_in_reward"] else "does not count"
        return [f"In self-critical training the end token {part} in the reward and in its document frequencies."]

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return caption_rows.captions_identity(model, processor, rows)


def load_clip_score(name: str, rows: Dataset, truncate: bool, device: Any = "cpu") -> ClipScore:
    if "image" not in rows.column_names:
        raise ValueError("CLIPScore compares captions with images; give data with images.")
    model, processor = load_model(name, "retrieval")
    return ClipScore(dual_encoder_of(model.to(device), processor), truncate=truncate)


def freeze_encoder(model: PreTrainedModel, guest: Guest | None = None) -> None:
    """Freezes the encoder and, if there is one, the vision encoder."""
    encoders = [model.get_encoder(), *vision_encoders(model).values()] if guest is None else [guest.image_encoder]
    for encoder in encoders:
        if encoder is not None:
            encoder.requires_grad_(False)


def consensus_weights(captions: Sequence[Sequence[str]], power: float = 1.0) -> list[list[float]]:
    """Weighs each caption of each image by its CIDEr-D against the other captions of its image (Phan et al. 2017).

    A weight is (the caption's score / the mean score of its image) ** power, within [0.05, 3]; that of an only caption
    is 1.
    """
    with_others = [texts for texts in captions if len(texts) > 1]
    scores = iter(())
    if with_others:
        metric = CiderD(document_frequency=DocumentFrequency.from_captions(captions))
        candidates = [caption for texts in with_others for caption in texts]
        references = [[*texts[:index], *texts[index + 1 :]] for texts in with_others for index in range(len(texts))]
        result = metric.compute(predictions=candidates, references=references, per_image=True)
        scores = iter(result["per_image"]["cider_d"])
    weights = []
    for texts in captions:
        if len(texts) < 2:
            weights.append([1.0] * len(texts))
            continue
        scores_of_image = numpy.array([next(scores) for _ in texts]) + 1e-3
        weights.append(((scores_of_image / scores_of_image.mean()) ** power).clip(*CONSENSUS_WEIGHTS).tolist())
    return weights
