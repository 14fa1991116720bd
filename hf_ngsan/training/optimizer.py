"""The optimizer of a run: Adam, with learning rates of their own for a vision and a text encoder."""

import torch

from ..models.vision_part import vision_encoders
from .recipe import RecipeError
from .settings import TrainingSettings


def make_optimizer(model: torch.nn.Module, settings: TrainingSettings, fused: bool) -> torch.optim.Optimizer:
    """Returns Adam over the weights that are not frozen.

    Its groups have a `rate_factor`: what the learning rate of the moment is multiplied by.

    Raises:
        RecipeError: there is a learning rate for a vision encoder that is not trained.
    """
    of_vision = trained_weights_of_vision(model)
    text_rate = getattr(settings, "text_learning_rate", None)
    of_text = set() if text_rate is None else trained_weights_of_text(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [one for one in trained if one not in of_vision | of_text], "rate_factor": 1.0}]
    rate = settings.vision_learning_rate
    if rate is not None and not of_vision:
        raise RecipeError(
            "training.vision_learning_rate is for a vision encoder that is trained, but this model has none or a "
            "frozen one; leave it out, or give model.vision_config with frozen: false."
        )
    if of_vision:
        groups.append(group_with_rate([one for one in trained if one in of_vision], rate, settings))
    if of_text:
        groups.append(group_with_rate([one for one in trained if one in of_text], text_rate, settings))
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


def group_with_rate(weights: list[torch.nn.Parameter], rate: float | None, settings: TrainingSettings) -> dict:
    rate = settings.learning_rate if rate is None else rate
    return {"params": weights, "rate_factor": rate / settings.learning_rate if settings.learning_rate else 1.0}


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Gives every group its share of a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def trained_weights_of_vision(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Returns the parameters of a model's vision encoders that are not frozen."""
    encoders = vision_encoders(model).values()
    return {one for encoder in encoders for one in encoder.parameters() if one.requires_grad}


def trained_weights_of_text(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Returns the parameters of a model's text encoder, its part `text`, that are not frozen."""
    encoder = getattr(model, "text", None)
    return {one for one in encoder.parameters() if one.requires_grad} if isinstance(encoder, torch.nn.Module) else set()
