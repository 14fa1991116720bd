"""The keys of a recipe: defaults, explanations and bounds."""

from dataclasses import dataclass, field


def setting(default, help: str, *, choices=None, minimum=None, below=None, free_on_resume: bool = False):
    """A recipe key: its default, its one-line explanation, its bounds, and whether a resumed run may change it."""
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "below": below,
        "free_on_resume": free_on_resume,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataSettings:
    """Which rows are trained on, and which words and captions of them."""

    spec: str = setting("scenes", "data set: scenes[:size=N,seed=S], coco-layout:DIR or features:DIR")
    train_split: str = setting("train", "split that is trained on, and whose captions make the vocabulary")
    validation_split: str | None = setting("validation", "split that chooses the best model; null = none")
    min_word_count: int = setting(5, "words seen less often in the training captions are unknown words", minimum=1)
    captions_per_image: int = setting(5, "captions drawn per image and epoch; an image is encoded once", minimum=1)
    max_caption_length: int = setting(20, "longest training caption in tokens; longer ones are cut", minimum=2)
    image_size: int | None = setting(
        None, "height and width in pixels that images are made; null = those of the backbone, or else 224", minimum=8
    )
    num_workers: int = setting(0, "processes that prepare batches; 0 = the main one", minimum=0, free_on_resume=True)


@dataclass(frozen=True)
class ScheduleSettings:
    """How long a stage of training is, and how its learning rate goes."""

    epochs: int = setting(15, "passes over the training split", minimum=1, free_on_resume=True)
    early_stopping_patience: int | None = setting(
        None,
        "the stage ends after this many evaluations without a new best; null = never",
        minimum=1,
        free_on_resume=True,
    )
    learning_rate: float = setting(3e-4, "peak learning rate of Adam", minimum=0.0)
    schedule: str = setting(
        "step", "after the warm-up: step, cosine or constant", choices=("step", "cosine", "constant")
    )
    warmup_epochs: int = setting(
        3, "epoch t of the stage, counted from 1, has learning_rate * min(t / warmup_epochs, 1)", minimum=0
    )
    decay_start: int = setting(6, "step schedule: last epoch before the first decay", minimum=0)
    decay_every: int = setting(3, "step schedule: epochs from one decay to the next", minimum=1)
    decay_factor: float = setting(0.5, "step schedule: factor of one decay", minimum=0.0)
    max_decays: int | None = setting(None, "step schedule: decays at most; null = any number", minimum=0)


def another_default(name: str, default):
    """A key of `ScheduleSettings` whose default is another in a stage."""
    return field(default=default, metadata=ScheduleSettings.__dataclass_fields__[name].metadata)


@dataclass(frozen=True)
class TrainingSettings(ScheduleSettings):
    """How the weights are fitted, saved and watched."""

    stage: str = setting(
        "xe",
        "xe = teacher forcing, scst = self-critical training of model.init_from, auto = one after the other",
        choices=("xe", "scst", "auto"),
    )
    output_dir: str | None = setting(None, "folder of the run; null = runs/NAME-OF-THE-YAML", free_on_resume=True)
    seed: int = setting(0, "of weights, order of images, captions drawn and dropout", minimum=0)
    batch_size: int = setting(50, "images per update, all processes and accumulation steps together", minimum=1)
    gradient_accumulation_steps: int = setting(1, "parts a batch is cut into to save memory", minimum=1)
    vision_learning_rate: float | None = setting(
        None, "peak learning rate of a vision part that is not frozen; null = learning_rate", minimum=0.0
    )
    adam_betas: tuple[float, float] = setting((0.9, 0.98), "decay of Adam's two averages")
    adam_epsilon: float = setting(1e-8, "Adam's epsilon", minimum=0.0)
    weight_decay: float = setting(0.0, "decoupled weight decay", minimum=0.0)
    label_smoothing: float = setting(
        0.0, "share of the target spread evenly over the vocabulary", minimum=0.0, below=1.0
    )
    consensus_power: float = setting(
        0.0, "captions count by their CIDEr-D against the image's others, to this power; 0 = all the same", minimum=0.0
    )
    max_grad_norm: float | None = setting(None, "gradients are clipped to this norm; null = not", minimum=0.0)
    ema_decay: float = setting(
        0.0, "average of the weights that is evaluated and saved; 0 = off", minimum=0.0, below=1.0
    )
    mixed_precision: str | None = setting(None, "fp16, bf16 or null = none", choices=("fp16", "bf16"))
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
class SelfCriticalSettings(ScheduleSettings):
    """How captions are drawn, rewarded and compared in the stage `scst`; the batch is that of section `training`."""

    learning_rate: float = another_default("learning_rate", 5e-6)
    schedule: str = another_default("schedule", "constant")
    warmup_epochs: int = another_default("warmup_epochs", 0)
    decoding: str = setting("sample", "how captions are drawn: sample or beam", choices=("sample", "beam"))
    samples_per_image: int = setting(5, "captions drawn for each image; the width of the beam search", minimum=1)
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    top_p: float = setting(1.0, "sampling keeps the likeliest words with this probability; 1 = all", minimum=1e-3)
    max_new_tokens: int = setting(20, "longest sample in tokens, its end included", minimum=1)
    baseline: str = setting(
        "leave_one_out",
        "reward that a sample is compared with: greedy, mean or leave_one_out",
        choices=("greedy", "mean", "leave_one_out"),
    )
    cider_d_weight: float = setting(1.0, "weight of CIDEr-D (0 to 10) in the reward", minimum=0.0)
    bleu_4_weight: float = setting(0.0, "weight of the sentence's BLEU-4 (0 to 1) in the reward", minimum=0.0)
    bad_ending_penalty: float = setting(
        0.0, "taken off the reward of a caption that ends with a word like 'a' or 'of', or not at all", minimum=0.0
    )
    reward_function: str | None = setting(
        None, "package.module:function of (captions, references) that returns a number for each caption; null = none"
    )
    reward_function_weight: float = setting(1.0, "weight of that function in the reward")
    document_frequency: str | None = setting(
        None, "file of document frequencies on token ids; null = those of the training captions"
    )


@dataclass(frozen=True)
class EvaluationSettings:
    """How captions are generated for the validation split, and what makes a model the best."""

    every_epochs: int = setting(
        1, "epochs from one evaluation to the next; the last epoch is always evaluated", minimum=1
    )
    metric: str = setting("cider_d", "the number that chooses the best model, higher is better")
    num_beams: int = setting(3, "width of the beam search", minimum=1)
    max_new_tokens: int = setting(20, "longest generated caption in tokens, its end included", minimum=1)
    length_penalty: float = setting(1.0, "beams are ranked by log-probability / length ** this")
    batch_size: int = setting(64, "images captioned at once in one process", minimum=1)
