"""The optimizer of a run: Adam, with a learning rate of its own for a vision encoder."""

import torch

from ..models.modeling_vision import vision_encoders
from .recipe import RecipeError
from .settings import TrainingSettings


def make_optimizer(model: torch.nn.Module, settings: TrainingSettings, fused: bool) -> torch.optim.Optimizer:
    """Returns Adam over the weights that are not frozen.

    Its groups have a `rate_factor`: what the learning rate of the moment is multiplied by.

    Raises:
        RecipeError: there is a learning rate for a vision encoder that is not trained.
    """
    of_vision = trained_weights_of_vision(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [one for one in trained if one not in of_vision], "rate_factor": 1.0}]
    rate = settings.vision_learning_rate
    if rate is not None and not of_vision:
        raise RecipeError(
            "training.vision_learning_rate is for a vision encoder that is trained, but this model has none or a "
            "frozen one; leave it out, or give model.vision_config with frozen: false."
        )
    if of_vision:
        rate = settings.learning_rate if rate is None else rate
        groups.append(
            {
                "params": [one for one in trained if one in of_vision],
                "rate_factor": rate / settings.learning_rate if settings.learning_rate else 1.0,
            }
        )
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Gives every group its share of a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def trained_weights_of_vision(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Returns the parameters of a model's vision encoders that are not frozen."""
    encoders = vision_encoders(model).values()
    return {one for encoder in encoders for one in encoder.parameters() if one.requires_grad}
