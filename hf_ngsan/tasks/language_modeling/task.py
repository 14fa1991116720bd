"""Language modeling: the next word of a caption from the words before it, without the image."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data import CaptionCollator
from ...models.modeling_rstnet_language_model import shift_behind_start
from ...training.objectives.objective import Update
from ...training.objectives.teacher_forcing import TeacherForcing
from ...training.task import Evaluation, InputRoles, Stage, Task
from ..caption_rows import captions_identity, load_rows
from ..new_models import report_vocabulary
from .build import new_language_model
from .evaluate import evaluate_language_model
from .recipe import LanguageModelingRecipe

COLUMNS = ("image_id", "captions")


class NextWord(TeacherForcing):
    """Cross-entropy of each word given those before it alone."""

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        config = model.config
        return {**inputs, "input_ids": shift_behind_start(inputs["labels"], config.bos_token_id, config.pad_token_id)}


class LanguageModelingTask(Task):
    """Trains a language model on captions by a [`LanguageModelingRecipe`]."""

    recipe_class = LanguageModelingRecipe
    unit = "images"
    model_noun = "a language model"
    does = "predicts the words of captions"
    tags = ("language-modeling",)
    has_results = False
    input_roles = InputRoles(words="input_ids", word_mask="attention_mask", rows_name="captions")
    recipe: LanguageModelingRecipe

    @property
    def greater_is_better(self) -> bool:
        return self.metric == "token_accuracy"

    def load_rows(self, split: str) -> Dataset:
        rows = load_rows(self.recipe.data.spec, split, limit=self.recipe.data.limit, for_training=True)
        return rows.select_columns([name for name in COLUMNS if name in rows.column_names])

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        return ["perplexity", "loss", "token_accuracy"]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        captions = [caption for texts in rows["captions"] for caption in texts]
        model, processor = new_language_model(self.recipe, captions)
        report_vocabulary(processor.tokenizer, captions)
        return model, processor

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        training = self.recipe.training
        return [Stage("xe", NextWord(training.label_smoothing), training)]

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        data = self.recipe.data
        return CaptionCollator(
            processor,
            captions_per_image=data.captions_per_image,
            max_caption_length=data.max_caption_length,
            seed=self.recipe.training.seed,
            with_images=False,
        )

    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation:
        return Evaluation(
            evaluate_language_model(model, processor, rows, accelerator, self.recipe.evaluation.batch_size)
        )

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        return {"captions": "all"}

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        return captions_identity(rows, processor.tokenizer)
