"""Settings of every task's training config: defaults, explanations and bounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..io.bounds import MAX_INTEGER


def setting(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    free_on_resume: bool = False,
) -> Any:
    """Returns a key of a training config: default, explanation, bounds, and whether a resumed run may change it."""
    bounds = {"choices": choices, "minimum": minimum, "maximum": maximum, "below": below}
    return field(default=default, metadata={"help": help, "free_on_resume": free_on_resume, **bounds})


def another_default(kind: type, name: str, default: Any) -> Any:
    """Returns a key of a class of settings with another default, for a subclass."""
    metadata = next(entry.metadata for entry in fields(kind) if entry.name == name)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataSettings:
    """Rows for training and evaluation."""

    spec: str = setting("scenes", "dataset; hf-ngsan datasets lists the kinds of datasets")
    train_split: str = setting("train", "split that is trained on")
    validation_split: str | None = setting(
        "validation", "split that chooses the best model; null = none; 'validation' = a tenth of train if there is none"
    )
    limit: int | None = setting(None, "rows used of each split, the first ones; null = all", minimum=1)
    num_workers: int = setting(0, "processes that prepare batches; 0 = the main one", minimum=0, free_on_resume=True)


@dataclass(frozen=True)
class ScheduleSettings:
    """Length of a stage of training, and its learning rate."""

    epochs: int = setting(15, "passes over the training split", minimum=1, free_on_resume=True)
    early_stopping_patience: int | None = setting(
        None,
        "the stage ends after this many evaluations without a new best; null = never",
        minimum=1,
        free_on_resume=True,
    )
    learning_rate: float = setting(3e-4, "peak learning rate of Adam", minimum=0.0, free_on_resume=True)
    schedule: str = setting(
        "step",
        "after the warm-up: step, cosine, inverse_sqrt or constant",
        choices=("step", "cosine", "inverse_sqrt", "constant"),
    )
    warmup_epochs: int = setting(
        3, "epoch t of the stage, counted from 1, has learning_rate * min(t / warmup_epochs, 1)", minimum=0
    )
    warmup_updates: int | None = setting(
        None, "inverse_sqrt schedule: updates up to the peak; null = those of warmup_epochs", minimum=1
    )
    decay_start: int = setting(6, "step schedule: last epoch before the first decay", minimum=0)
    decay_every: int = setting(3, "step schedule: epochs from one decay to the next", minimum=1)
    decay_factor: float = setting(0.5, "step schedule: factor of one decay", minimum=0.0)
    max_decays: int | None = setting(None, "step schedule: decays at most; null = any number", minimum=0)


@dataclass(frozen=True)
class TrainingSettings(ScheduleSettings):
    """Optimization, saving and logging."""

    output_dir: str | None = setting(None, "folder of the run; null = runs/NAME-OF-THE-YAML", free_on_resume=True)
    seed: int = setting(0, "seed of weights, order of rows, random choices and dropout", minimum=0, maximum=MAX_INTEGER)
    batch_size: int = setting(50, "rows per update, all processes and accumulation steps together", minimum=1)
    drop_last: bool = setting(False, "leave out the last batch of an epoch if it is not full")
    gradient_accumulation_steps: int = setting(
        1, "parts a batch is cut into to save memory", minimum=1, free_on_resume=True
    )
    freeze: tuple[str, ...] = setting(
        (), "names of modules or parameters, or patterns like *.bias, that are not trained; [] = none"
    )
    vision_learning_rate: float | None = setting(
        None, "peak learning rate of a vision encoder that is not frozen; null = learning_rate", minimum=0.0
    )
    adam_betas: tuple[float, float] = setting((0.9, 0.98), "decay of Adam's two averages")
    adam_epsilon: float = setting(1e-8, "Adam's epsilon", minimum=0.0)
    weight_decay: float = setting(0.0, "decoupled weight decay", minimum=0.0)
    max_grad_norm: float | None = setting(
        None, "clip gradients to this norm; null disables it", minimum=0.0, free_on_resume=True
    )
    ema_decay: float = setting(
        0.0, "average of the weights that is evaluated and saved; 0 = off", minimum=0.0, below=1.0
    )
    mixed_precision: str | None = setting(
        None, "fp16, bf16, auto = bf16 where the device computes in it, null = none", choices=("fp16", "bf16", "auto")
    )
    num_threads: int | None = setting(None, "CPU threads of each process; null = PyTorch decides", minimum=1)
    save_every_steps: int | None = setting(
        None, "also save a checkpoint every so many updates; null = after each epoch", minimum=1, free_on_resume=True
    )
    keep_checkpoints: int = setting(2, "resumable checkpoints kept; older ones go", minimum=1, free_on_resume=True)
    log_every: int = setting(50, "updates between two points in the tracker", minimum=1, free_on_resume=True)
    tracker: str | None = setting(
        "tensorboard", "an Accelerate tracker, such as tensorboard; null = none", free_on_resume=True
    )


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation and the choice of the best model."""

    every_epochs: int = setting(
        1, "epochs from one evaluation to the next; the last epoch is always evaluated", minimum=1
    )
    metric: str = setting("loss", "score of the validation split that chooses the best model")
    batch_size: int = setting(64, "rows evaluated together in one process", minimum=1, free_on_resume=True)


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2022) for models of transformers: W becomes W + alpha / rank * B A."""

    rank: int | None = setting(None, "rows of A; null = no adapters, the weights themselves are trained", minimum=1)
    alpha: float = setting(16.0, "scale of the adapters, divided by rank", minimum=0.0)
    dropout: float = setting(0.0, "dropout of the inputs of A", minimum=0.0, below=1.0)
    target_modules: tuple[str, ...] = setting(
        (), "names, or ends of names, of the linear layers that get adapters; [] = all but the output layer"
    )
    merge: bool = setting(
        True,
        "also save whole models, adapters added to their weights, which every command reads; false = adapters alone",
    )
