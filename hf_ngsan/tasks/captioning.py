"""Image captioning: teacher forcing, self-critical training, and captions scored against references."""

import logging
from collections.abc import Callable, Sequence

from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data import CaptionCollator, extra_scores_of
from ..metrics.diagnostics import BAD_ENDINGS
from ..models.modeling_vision import vision_encoders
from ..provenance import remember_features
from ..training.objectives.self_critical import SelfCritical
from ..training.objectives.self_critical_policy import Policy
from ..training.objectives.self_critical_rewards import CaptionRewards, load_document_frequency, load_reward_function
from ..training.objectives.teacher_forcing import TeacherForcing
from ..training.recipe import RecipeError
from ..training.stages import Stage
from ..training.task import Task
from .caption_consensus import consensus_weights
from .caption_evaluation import caption_metric, evaluate_captioner, score_captions
from .caption_rows import captions_identity, load_rows, rows_for, visual_feature_size
from .captioning_recipe import CaptioningRecipe
from .image_augmentation import augmentation_of, check_augmentation
from .new_captioners import new_captioner

logger = logging.getLogger(__name__)

MOST_UNKNOWN_WORDS = 0.05
"""Share of unknown words above which training warns."""


class CaptioningTask(Task):
    """Trains a captioner of images, regions or video frames by a [`CaptioningRecipe`]."""

    recipe_class = CaptioningRecipe
    unit = "images"
    recipe: CaptioningRecipe

    def load_rows(self, split: str) -> Dataset:
        return load_rows(self.recipe.data.spec, split, limit=self.recipe.data.limit, for_training=True)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        first = rows.select(range(min(2, len(rows))))
        if len(first) < 2:
            raise RecipeError(
                f"{self.recipe.data.spec}, split {self.recipe.data.validation_split}, has one image only; CIDEr-D "
                "needs two or more."
            )
        known = list(score_captions([captions[0] for captions in first["captions"]], first, caption_metric()))
        extra_scores = extra_scores_of(self.recipe.data.spec)
        return known if extra_scores is None else [*known, *extra_scores.names]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_captioner(self.recipe, captions, visual_feature_size(rows))
        report_vocabulary(processor.tokenizer, captions, is_new="init_from" not in self.recipe.model)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        power = self.recipe.training.consensus_power
        if power:
            weighted = rows.add_column("caption_weights", consensus_weights(list(rows["captions"]), power))
            form = {**rows.format, **rows.format["format_kwargs"], "output_all_columns": True}
            del form["format_kwargs"]
            rows = weighted.with_format(**form)  # which add_column forgets
        rows = self.evaluation_rows(model, processor, rows)
        check_augmentation(self.recipe, rows.column_names)
        remember_features(model, rows, self.recipe.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return rows_for(model, processor, rows, self.recipe.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns the stages that `training.stage` asks for.

        Raises:
            RecipeError: self-critical training has nothing to start from, or its settings do not go together.
            RewardError: the reward cannot be computed.
        """
        training, stages = self.recipe.training, []
        if training.stage != "scst":
            unknown = processor.tokenizer.unk_token_id
            forcing = TeacherForcing(training.label_smoothing, training.word_dropout, unknown)
            stages.append(Stage("xe", forcing, training))
        if training.stage != "xe":
            objective = self.self_critical(model, processor, list(rows["captions"]))
            settings = self.recipe.self_critical
            prepare = freeze_encoder if settings.freeze_encoder else None
            stages.append(Stage("scst", objective, settings, epoch_name="self-critical epoch", prepare=prepare))
        return stages

    def self_critical(
        self, model: PreTrainedModel, processor: ProcessorMixin, references: list[list[str]]
    ) -> SelfCritical:
        settings, tokenizer = self.recipe.self_critical, processor.tokenizer
        check_self_critical(self.recipe)
        functions = {}
        if settings.reward_function is not None:
            function = load_reward_function(settings.reward_function)
            functions[settings.reward_function] = (function, settings.reward_function_weight)
        frequency = None
        if settings.document_frequency is not None:
            frequency = load_document_frequency(settings.document_frequency)
        rewards = CaptionRewards(
            references,
            tokenizer,
            weights={"cider_d": settings.cider_d_weight, "bleu_4": settings.bleu_4_weight},
            functions=functions,
            document_frequency=frequency,
            end_token=settings.end_token_in_reward,
        )
        policy = Policy.of(
            model, temperature=settings.temperature, top_p=settings.top_p, max_new_tokens=settings.max_new_tokens
        )
        vocabulary = tokenizer.get_vocab()
        return SelfCritical(rewards, settings, policy, {vocabulary[word] for word in BAD_ENDINGS & vocabulary.keys()})

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.recipe.data
        return CaptionCollator(
            processor,
            captions_per_image=data.captions_per_image,
            max_caption_length=data.max_caption_length,
            seed=self.recipe.training.seed,
            augment=augmentation_of(self.recipe),
        )

    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator
    ) -> dict[str, float]:
        settings = self.recipe.evaluation
        return evaluate_captioner(
            model,
            processor,
            rows,
            accelerator,
            extra_scores=extra_scores_of(self.recipe.data.spec),
            batch_size=settings.batch_size,
            num_beams=settings.num_beams,
            max_new_tokens=settings.max_new_tokens,
            length_penalty=settings.length_penalty if settings.num_beams > 1 else None,
        ).scores

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return captions_identity(rows, processor.tokenizer, model.config.features_provenance)


def report_vocabulary(tokenizer: PreTrainedTokenizerBase, captions: list[str], is_new: bool = True) -> None:
    """Logs the size of the vocabulary and the share of words that it lacks, as a warning if that is large.

    Args:
        tokenizer: of the captioner.
        captions: for training.
        is_new: whether the vocabulary was made of them; otherwise it is that of a trained captioner, which is kept.
    """
    ids = tokenizer(captions, add_special_tokens=False)["input_ids"]
    number = sum(map(len, ids))
    unknown = sum(words.count(tokenizer.unk_token_id) for words in ids) / max(number, 1)
    known = len(tokenizer) - len(set(tokenizer.all_special_ids))
    message = "The vocabulary has %d words; %.1f%% of the words of the training captions are unknown to it%s."
    if unknown > MOST_UNKNOWN_WORDS:
        remedy = "lower data.min_word_count" if is_new else "a captioner without model.init_from would learn them"
        logger.warning("Warning: " + message, known, 100 * unknown, f": {remedy}")
    else:
        logger.info(message, known, 100 * unknown, "")


def freeze_encoder(model: PreTrainedModel) -> None:
    """Freezes what turns an image into encoder states, a vision encoder included."""
    for encoder in (model.get_encoder(), *vision_encoders(model).values()):
        encoder.requires_grad_(False)


def check_self_critical(recipe: CaptioningRecipe) -> None:
    """Raises a RecipeError if self-critical training cannot start, or its settings do not go together."""
    settings = recipe.self_critical
    if recipe.training.stage == "scst" and "init_from" not in recipe.model:
        raise RecipeError(
            "Self-critical training starts from a trained captioner: name its folder with model.init_from=DIR, or "
            "train both stages with --stage auto."
        )
    if settings.samples_per_image < 2 and settings.baseline != "greedy":
        raise RecipeError(
            f"self_critical.baseline={settings.baseline} compares the samples of an image; set "
            "self_critical.samples_per_image to 2 or more, or the baseline to greedy."
        )
    if settings.decoding == "beam" and (settings.temperature != 1 or settings.top_p != 1):
        raise RecipeError(
            "self_critical.temperature and top_p are of sampling; leave them at 1 with self_critical.decoding=beam."
        )
