"""Learning rates as pure functions of the position in the run, so that a resumed run needs no scheduler state."""

import math

from .settings import ScheduleSettings


def learning_rate_at(step: int, steps_per_epoch: int, settings: ScheduleSettings) -> float:
    """Returns the learning rate of an update.

    Guo et al. 2020, section 5.1, is the default: with the epoch t counted from 1, min(t * 1e-4, 3e-4), after 6 epochs
    halved every 3 epochs. The paper does not say when it is halved first: here in epoch 7 (`decay_start` + 1).

    Args:
        step: number of the update in the stage, from 0.
        steps_per_epoch: updates of one epoch.
        settings: `learning_rate`, `schedule`, `warmup_epochs`, `epochs` and the decay of the step schedule. `cosine`
            warms up and decays with each update, to 0 at the end of `epochs`; so does `inverse_sqrt`, after
            `warmup_updates` with 1 / sqrt(updates) (Vaswani et al. 2017, eq. 3); the others change between epochs only.
    """
    if settings.schedule == "inverse_sqrt":
        return settings.learning_rate * inverse_sqrt_factor(step, steps_per_epoch, settings)
    if settings.schedule == "cosine":
        return settings.learning_rate * cosine_factor(step, steps_per_epoch, settings)
    epoch = step // steps_per_epoch + 1
    factor = min(epoch / settings.warmup_epochs, 1.0) if settings.warmup_epochs else 1.0
    if settings.schedule == "step":
        decays = max(0, math.ceil((epoch - settings.decay_start) / settings.decay_every))
        if settings.max_decays is not None:
            decays = min(decays, settings.max_decays)
        factor *= settings.decay_factor**decays
    return settings.learning_rate * factor


def cosine_factor(step: int, steps_per_epoch: int, settings: ScheduleSettings) -> float:
    warmup = settings.warmup_epochs * steps_per_epoch
    if step < warmup:
        return (step + 1) / warmup
    total = settings.epochs * steps_per_epoch
    return 0.5 * (1 + math.cos(math.pi * min((step - warmup) / max(total - warmup, 1), 1.0)))


def inverse_sqrt_factor(step: int, steps_per_epoch: int, settings: ScheduleSettings) -> float:
    warmup = max(settings.warmup_updates or settings.warmup_epochs * steps_per_epoch, 1)
    return min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
