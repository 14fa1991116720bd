"""One training run from its recipe: data, captioner, loop, and the folder that holds the result."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import set_seed

from ..data import CaptionCollator
from ..launching import make_accelerator
from ..loading import save_captioner
from ..provenance import remember_features
from .checkpoints import TrainingProgress
from .consensus import consensus_weights
from .evaluation import caption_metric, evaluate_captioner, score_captions
from .loop import TrainingLoop
from .new_captioners import new_captioner
from .output_folder import check_output_folder, prepare_output_folder
from .recipe import Recipe, RecipeError, suggestion
from .rows import is_scenes, load_rows, rows_for, visual_feature_size
from .stages import make_stages

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a run left behind.

    Attributes:
        output_dir: the run's folder.
        best_dir: the folder of the best model, or of the last one if nothing was evaluated; `from_pretrained` reads it.
        best_score, best_epoch: of the best model; None if nothing was evaluated. Epoch 0 is the model of
            `model.init_from` itself.
        history: one entry per epoch: loss, scores, learning rate, time.
    """

    output_dir: Path
    best_dir: Path
    best_score: float | None
    best_epoch: int | None
    history: list[dict]


def train(recipe: Recipe, *, resume: bool = False, overwrite: bool = False) -> TrainingResult:
    """Train a captioner.

    Works in one process and under `accelerate launch`. The folder `recipe.training.output_dir` gets

    - `recipe.yaml`, the recipe, commented;
    - `best/` and `last/`, models with processors for `from_pretrained`; with both stages also `xe/`, the best model of
      the first, with which the second begins;
    - `history.jsonl`, one line an epoch, and `tensorboard/`;
    - `checkpoints/`, from which `resume` goes on.

    Args:
        recipe: see [`load_recipe`].
        resume: go on from the newest intact checkpoint. On the CPU the run ends with the same weights to the bit as one
            that was never stopped. A run that has no checkpoint yet is begun.
        overwrite: delete an earlier run in the same folder first.

    Raises:
        RecipeError: the recipe does not fit the data, or the run that is resumed.
        FileExistsError: the folder is not empty, and neither `resume` nor `overwrite` was asked for.
        DataError: the data cannot be used.
        CheckpointError: no checkpoint is intact.
        TrainingDivergedError: the loss became infinite or not a number.
    """
    settings = recipe.training
    check_output_folder(recipe, resume, overwrite)
    check_tracker(settings.tracker)
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    accelerator = make_accelerator(
        mixed_precision=settings.mixed_precision or "no", log_with=settings.tracker, project_dir=str(recipe.output_dir)
    )
    if not accelerator.is_main_process:
        logging.getLogger("hf_ngsan").setLevel(logging.ERROR)
    with accelerator.main_process_first():
        train_rows = load_rows(recipe.data.spec, recipe.data.train_split)
        validation_rows = None
        if recipe.data.validation_split is not None:
            validation_rows = load_rows(recipe.data.spec, recipe.data.validation_split)
            check_metric(recipe, validation_rows)

    set_seed(settings.seed)
    captions = [caption for row in train_rows["captions"] for caption in row]
    if settings.consensus_power:
        weights = consensus_weights(list(train_rows["captions"]), settings.consensus_power)
        train_rows = train_rows.add_column("caption_weights", weights)
    model, processor = new_captioner(recipe, captions, visual_feature_size(train_rows))
    train_rows = rows_for(model, processor, train_rows, recipe.data.spec)
    remember_features(model, train_rows, recipe.data.spec)
    if validation_rows is not None:
        validation_rows = rows_for(model, processor, validation_rows, recipe.data.spec)
    stages = make_stages(recipe, model, processor, list(train_rows["captions"]))
    if any(stage.name == "scst" for stage in stages):
        train_rows = train_rows.add_column("row_index", list(range(len(train_rows))))
    collator = CaptionCollator(
        processor,
        captions_per_image=recipe.data.captions_per_image,
        max_caption_length=recipe.data.max_caption_length,
        seed=settings.seed,
    )

    def evaluate(model) -> dict[str, float]:
        return evaluate_split(model, processor, validation_rows, recipe, accelerator)

    loop = TrainingLoop(
        accelerator,
        model,
        stages,
        train_rows,
        collator,
        recipe,
        save_model=lambda model, folder: save_captioner(model, processor, folder),
        evaluate=evaluate if validation_rows is not None else None,
        data_identity=identity_of(train_rows, captions, processor, model.config.features_provenance),
    )
    is_resumed = resume and loop.resume()  # which may fail, with the folder as it was
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        prepare_output_folder(recipe, overwrite)
    accelerator.wait_for_everyone()
    if not is_resumed:
        logger.info(
            "Training %s parameters on %d images, on %s.",
            f"{count_parameters(model):,}",
            len(train_rows),
            "one process" if accelerator.num_processes == 1 else f"{accelerator.num_processes} processes",
        )
    start_tracker(accelerator, recipe, loop.progress)
    progress = loop.run()
    for tracker in accelerator.trackers:
        tracker.finish()
    return result_of(recipe, progress)


def evaluate_split(model, processor, rows, recipe: Recipe, accelerator: Accelerator) -> dict[str, float]:
    """The scores of a split by the recipe's settings; with relation accuracy where the rows are scenes."""
    settings = recipe.evaluation
    return evaluate_captioner(
        model,
        processor,
        rows,
        accelerator,
        relations=is_scenes(recipe.data.spec),
        batch_size=settings.batch_size,
        num_beams=settings.num_beams,
        max_new_tokens=settings.max_new_tokens,
        length_penalty=settings.length_penalty if settings.num_beams > 1 else None,
    ).scores


def check_metric(recipe: Recipe, rows: Sequence):
    """Raise a RecipeError unless the metric that chooses the best model is one that the evaluation computes."""
    first = rows.select(range(min(2, len(rows))))
    if len(first) < 2:
        raise RecipeError(
            f"{recipe.data.spec}, split {recipe.data.validation_split}, has one image only; CIDEr-D needs two or more."
        )
    known = list(score_captions([captions[0] for captions in first["captions"]], first, caption_metric()))
    if is_scenes(recipe.data.spec):
        known += ["objects", "symmetric", "directional"]
    metric = recipe.evaluation.metric
    if metric not in known:
        raise RecipeError(f"evaluation.metric: unknown metric {metric!r}{suggestion(metric, known)}")


def check_tracker(name: str | None):
    if name is None:
        return
    known = sorted(str(tracker) for tracker in LOGGER_TYPE_TO_CLASS)
    if name not in known:
        raise RecipeError(f"training.tracker: unknown tracker {name!r}{suggestion(name, known)}")
    if name not in [str(tracker) for tracker in get_available_trackers()]:
        raise RecipeError(f"training.tracker is {name}, which is not installed; pip install {name}, or set it to null.")


def start_tracker(accelerator: Accelerator, recipe: Recipe, progress: TrainingProgress):
    if recipe.training.tracker == "tensorboard":  # a resumed run writes the steps after its checkpoint once more
        options = {"tensorboard": {"purge_step": progress.step + 1}} if progress.step else {}
        accelerator.init_trackers("tensorboard", init_kwargs=options)
    elif recipe.training.tracker is not None:
        accelerator.init_trackers("hf-ngsan", config=recipe.to_dict())


def identity_of(rows: Sequence, captions: list[str], processor, features_provenance: Mapping | None) -> dict:
    """What tells the training data from any other, without reading all features."""
    identity = {
        "number of images": len(rows),
        "text of the captions": short_checksum(captions),
        "vocabulary": short_checksum(sorted(processor.tokenizer.get_vocab().items())),
    }
    if features_provenance is not None:
        identity["backbone or preprocessing of its features"] = short_checksum(features_provenance["checksums"])
    return identity


def short_checksum(value) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def result_of(recipe: Recipe, progress: TrainingProgress) -> TrainingResult:
    folder = recipe.output_dir
    return TrainingResult(
        output_dir=folder,
        best_dir=folder / ("best" if progress.best_epoch is not None else "last"),
        best_score=progress.best_score,
        best_epoch=progress.best_epoch,
        history=progress.history,
    )
