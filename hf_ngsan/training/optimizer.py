"""The optimizer of a run: Adam, with a learning rate of its own for a vision part."""

import torch

from .settings import TrainingSettings


def make_optimizer(model: torch.nn.Module, settings: TrainingSettings, fused: bool) -> torch.optim.Optimizer:
    """Adam over the weights that are not frozen.

    Its groups have a `rate_factor`: what the learning rate of the moment is multiplied by.
    """
    vision = getattr(getattr(model, "base_model", None), "vision", None)
    of_vision = set() if vision is None else set(vision.parameters())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [one for one in trained if one not in of_vision], "rate_factor": 1.0}]
    if of_vision & set(trained):
        rate = settings.learning_rate if settings.vision_learning_rate is None else settings.vision_learning_rate
        groups.append(
            {
                "params": [one for one in trained if one in of_vision],
                "rate_factor": rate / settings.learning_rate if settings.learning_rate else 1.0,
            }
        )
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=tuple(settings.adam_betas),
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float):
    """Give every group its share of a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]
