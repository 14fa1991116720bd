"""The stages of a run: teacher forcing, self-critical training, or the second after the first."""

from dataclasses import dataclass

from ..metrics.diagnostics import BAD_ENDINGS
from .objective import Objective
from .policy import Policy
from .recipe import Recipe, RecipeError
from .rewards import CaptionRewards, load_document_frequency, load_reward_function
from .self_critical import SelfCritical
from .settings import ScheduleSettings
from .teacher_forcing import TeacherForcing

STAGE_NAMES = {"xe": "epoch", "scst": "self-critical epoch"}


@dataclass(frozen=True)
class Stage:
    """A part of a run with one objective and one schedule.

    Attributes:
        name: `xe` or `scst`.
        objective: turns batches into losses.
        settings: the learning rate's schedule, `epochs` and `early_stopping_patience` are used.
    """

    name: str
    objective: Objective
    settings: ScheduleSettings


def make_stages(recipe: Recipe, model, processor, references: list[list[str]]) -> list[Stage]:
    """The stages that `training.stage` asks for.

    Args:
        recipe: the run's recipe.
        model, processor: the captioner.
        references: the captions of every training row.

    Raises:
        RecipeError: self-critical training has nothing to start from, or its settings do not go together.
        RewardError: the reward cannot be computed.
    """
    stages = []
    if recipe.training.stage != "scst":
        stages.append(Stage("xe", TeacherForcing(recipe.training.label_smoothing), recipe.training))
    if recipe.training.stage != "xe":
        stages.append(Stage("scst", self_critical(recipe, model, processor, references), recipe.self_critical))
    return stages


def self_critical(recipe: Recipe, model, processor, references: list[list[str]]) -> SelfCritical:
    settings, tokenizer = recipe.self_critical, processor.tokenizer
    check_self_critical(recipe)
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
    )
    policy = Policy.of(
        model, temperature=settings.temperature, top_p=settings.top_p, max_new_tokens=settings.max_new_tokens
    )
    vocabulary = tokenizer.get_vocab()
    return SelfCritical(rewards, settings, policy, {vocabulary[word] for word in BAD_ENDINGS & vocabulary.keys()})


def check_self_critical(recipe: Recipe):
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
