"""Captioners made new from a recipe, loaded from a folder or the Hub, and saved."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.image_utils import SizeDict
from transformers.utils import logging as transformers_logging

from ..auto import CAPTIONERS, config_class, model_class, processor_class
from ..data import build_tokenizer
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.visual import fields_of_source
from .features_identity import check_features
from .preprocessing import load_image_processor
from .recipe import EvaluationSettings, Recipe, RecipeError, suggestion
from .rows import only_features, only_images, visual_feature_size

UNKNOWN_WORD_ID = 3
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
FOLLOWS_FROM_DATA = {
    **dict.fromkeys(("vocab_size", *SPECIAL_TOKENS), "the vocabulary of the training captions"),
    "features_identity": "the features that are trained on",
}


class ModelFolderError(ValueError):
    """A folder that holds no complete captioner; the message names it and says what is missing."""


def new_captioner(recipe: Recipe, captions: Iterable[str], visual_feature_size: int | None = None):
    """Make the model and processor that a recipe describes, with the vocabulary of the training captions.

    With `model.init_from` both come from a trained captioner, its vocabulary included, and the other fields of the
    section change its configuration.

    Args:
        recipe: sections `model`, `data` (min_word_count, image_size) and `evaluation` (how it generates by default) are
            used.
        captions: every training caption.
        visual_feature_size: width D of the data's features, for a model without a vision part.

    Returns:
        The model, on the CPU, and its processor.

    Raises:
        RecipeError: unknown model type or field, a field of the wrong type, or features of another width.
    """
    fields = dict(recipe.model)
    if "init_from" in fields:
        model, processor = fine_tuned_captioner(fields, recipe.data.image_size)
    else:
        tokenizer = build_tokenizer(captions, min_count=recipe.data.min_word_count)
        if visual_feature_size is not None and not has_vision(fields):
            fields.setdefault("visual_feature_size", visual_feature_size)
        config = build_config(fields, len(tokenizer))
        config.pad_token_id, config.bos_token_id, config.eos_token_id = (
            tokenizer.pad_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
        )
        config.decoder_start_token_id = tokenizer.bos_token_id
        model = model_class(config.model_type, "AutoModelForImageTextToText")(config)
        image_processor = None
        if config.vision_config is not None:
            image_processor = new_vision(model, recipe.data.image_size)
        processor = processor_class(config.model_type)(image_processor=image_processor, tokenizer=tokenizer)
    set_generation_defaults(model, recipe.evaluation)
    return model, processor


def build_config(fields: Mapping, vocab_size: int):
    """The configuration with `model_type` and the fields of a recipe's section `model`.

    Raises:
        RecipeError: unknown model type or field (the closest valid one is named), or a field of the wrong type.
    """
    fields = dict(fields)
    kind = config_class_of(fields.pop("model_type"))
    check_field_names(fields, kind)
    fields = with_named_backbone(fields)
    try:
        return kind(**fields, vocab_size=vocab_size)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error


def fine_tuned_captioner(fields: dict, image_size: int | None):
    """Load the captioner named by `init_from`, with the other fields changed in its configuration.

    It keeps its image processor, but for the size where one is given; with a new vision part it gets a new one.
    """
    folder = fields.pop("init_from")
    config = load_config(folder)
    if fields.pop("model_type", config.model_type) != config.model_type:
        raise RecipeError(f"model.init_from: {folder} is a {config.model_type}; set model.model_type accordingly.")
    check_field_names(fields, type(config))
    model, processor = load_captioner(folder, **with_named_backbone(fields))
    if model.config.vision_config is not None and processor.image_processor is None:
        processor.image_processor = new_vision(model, image_size)
    elif image_size is not None and processor.image_processor is not None:
        processor.image_processor.size = SizeDict(height=image_size, width=image_size)
    return model, processor


def has_vision(fields: Mapping) -> bool:
    """Whether the captioner with these fields of a configuration has a vision part."""
    kind = config_class_of(fields["model_type"])
    return (fields["vision_config"] if "vision_config" in fields else kind().vision_config) is not None


def with_named_backbone(fields: Mapping) -> dict:
    """The fields of a recipe; a vision part that names its backbone, but does not describe it, has it as it is there.

    Raises:
        RecipeError: there is no such backbone.
    """
    vision = fields.get("vision_config")
    if not isinstance(vision, Mapping) or not vision.get("pretrained") or vision.get("backbone_config"):
        return dict(fields)
    try:
        found = fields_of_source(str(vision["pretrained"]))
    except (ValueError, OSError) as error:
        raise unusable_backbone(vision["pretrained"], error) from error
    return {**fields, "vision_config": {**found, **vision, "backbone_config": found["backbone_config"]}}


def new_vision(model: PreTrainedModel, image_size: int | None) -> CaptioningImageProcessor:
    """Load the weights of a new captioner's backbone, where they have a source, and make its image processor.

    The images are prepared as the source says, else as ImageNet's; `image_size` is their height and width anyway.

    Raises:
        RecipeError: the weights or the preprocessing cannot be loaded.
    """
    vision = model.base_model.vision
    source = vision.config.pretrained
    if source is None:
        size = {} if image_size is None else {"size": {"height": image_size, "width": image_size}}
        return CaptioningImageProcessor(**size)
    try:
        with without_progress_bars():
            vision.load_pretrained_backbone()
        return load_image_processor(source, vision.config.kind, image_size=image_size)
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        raise unusable_backbone(source, error) from error


def unusable_backbone(name: str, error: Exception) -> RecipeError:
    return RecipeError(
        f"model.vision_config: the backbone {name} cannot be used ({one_sentence(error)}); pretrained must be the "
        "folder of a backbone or detection model, or its name on the Hub."
    )


def rows_for(model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str) -> Dataset:
    """The columns of a data set that a captioner reads: images for one that sees, if there are any, or else features.

    Args:
        model, processor: the captioner.
        rows: from [`load_rows`].
        data: what messages call them.

    Raises:
        RecipeError: the features are of another width than the model takes, or known to be of another backbone.
    """
    if model.config.vision_config is not None and "image" in rows.column_names:
        return only_images(rows)
    check_feature_size(model, visual_feature_size(rows), data)
    check_features(model, processor, rows, data)
    return only_features(rows)


def config_class_of(model_type: str):
    if model_type not in CAPTIONERS:
        raise RecipeError(f"model.model_type: unknown captioner {model_type!r}{suggestion(model_type, CAPTIONERS)}")
    return config_class(model_type)


def check_field_names(fields: Iterable[str], kind: type):
    valid = config_fields(kind)
    for name in fields:
        if name in FOLLOWS_FROM_DATA:
            raise RecipeError(f"model.{name} follows from {FOLLOWS_FROM_DATA[name]}; leave it out.")
        if name not in valid:
            raise RecipeError(f"unknown key model.{name}{suggestion(name, sorted(valid), 'model')}")


def config_fields(kind: type) -> set[str]:
    """The fields that a configuration class itself declares, those of transformers' base class left out."""
    own = [parent for parent in kind.__mro__ if parent.__module__.startswith("hf_ngsan.")]
    names = {name for parent in own for name in parent.__annotations__}
    return names & {field.name for field in dataclasses.fields(kind)}


def check_feature_size(model: PreTrainedModel, visual_feature_size: int, data: str):
    """Raise a RecipeError unless the features of a data set are as wide as the model's input."""
    expected = model.config.visual_feature_size
    if expected != visual_feature_size:
        images = "" if model.config.vision_config is None else ", or data with images, such as scenes:images=true"
        raise RecipeError(
            f"The features of {data} are {visual_feature_size} wide, but the model takes visual_feature_size="
            f"{expected}; use a model or features of the same width{images}."
        )


def set_generation_defaults(model: PreTrainedModel, settings: EvaluationSettings):
    """Make `generate()` without arguments do what the evaluation does, in the saved model too."""
    defaults = model.generation_config
    defaults.num_beams = settings.num_beams
    defaults.max_new_tokens = settings.max_new_tokens
    defaults.length_penalty = settings.length_penalty if settings.num_beams > 1 else None
    defaults.suppress_tokens = [UNKNOWN_WORD_ID]


def save_captioner(model: PreTrainedModel, processor: ProcessorMixin, folder: str | os.PathLike):
    """Save both into one folder that the Auto classes load."""
    with without_progress_bars():
        model.save_pretrained(folder)
        processor.save_pretrained(folder)


def find_model_folder(name: str | os.PathLike) -> str:
    """The folder of a model: `name` itself, or `best` or else `last` in it where it is the folder of a training run.

    A name that is no folder, but could be one of the Hub, is returned as it is.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: a folder without a model.
    """
    folder = Path(name)
    if not folder.exists():
        if HUB_NAME.fullmatch(str(name)) and "/" in str(name) and not folder.parent.is_dir():
            return str(name)
        raise FileNotFoundError(f"There is no model folder {folder}.")
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file; give the folder of a model, such as {folder.parent}.")
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelFolderError(
        f"{folder} holds no model (config.json is missing); give a folder that save_pretrained or a training run wrote."
    )


def load_config(name: str | os.PathLike):
    """Configuration of a captioner in a folder or on the Hub.

    Raises:
        FileNotFoundError, ModelFolderError: see [`find_model_folder`]; or an unreadable configuration.
    """
    folder = find_model_folder(name)
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        if not Path(folder).is_dir():
            raise ModelFolderError(
                f"There is no model folder {folder}, and no such model on the Hub was loaded ({one_sentence(error)})."
            ) from error
        raise ModelFolderError(f"{folder}: the configuration cannot be loaded ({one_sentence(error)}).") from error
    if config.model_type not in CAPTIONERS:
        raise ModelFolderError(
            f"{folder} holds a {config.model_type} model; this needs a captioner ({', '.join(CAPTIONERS)})."
        )
    return config


def load_captioner(name: str | os.PathLike, **config_changes):
    """Load a captioner and its processor, from a model folder, a training run's folder or the Hub.

    Args:
        name: what [`find_model_folder`] takes.
        config_changes: fields of the configuration that get other values.

    Returns:
        The model in evaluation mode, and the processor.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: the folder is no captioner or was not written completely.
        RecipeError: the changes are no values of their fields.
    """
    folder = find_model_folder(name)
    config = changed_config(load_config(name), config_changes)
    if Path(folder).is_dir() and not (Path(folder) / "tokenizer.json").is_file():
        raise ModelFolderError(f"{folder} is not a complete captioner: tokenizer.json is missing; save it again.")
    try:
        with without_progress_bars():
            model, report = AutoModelForImageTextToText.from_pretrained(
                folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True
            )
            processor = AutoProcessor.from_pretrained(folder)
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        raise ModelFolderError(
            f"{folder} is not a complete captioner ({one_sentence(error)}); save it again or use an earlier one."
        ) from error
    check_weights(folder, report, config_changes)
    check_tokenizer(folder, processor.tokenizer, config.vocab_size)
    return model.eval(), processor


def changed_config(config: PreTrainedConfig, changes: Mapping):
    """The configuration with other values in some fields, checked as a new one is."""
    try:
        return type(config).from_dict({**config.to_dict(), **changes}) if changes else config
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error


def check_weights(folder: str, report: Mapping, config_changes: Iterable[str]):
    """Raise a ModelFolderError if a loaded model has weights that its folder lacks, or has in another shape."""
    for fault, names in (
        ("are missing", report["missing_keys"]),
        ("have another shape than the configuration says", {name for name, *_ in report["mismatched_keys"]}),
    ):
        if names and config_changes:
            raise ModelFolderError(
                f"{folder} has no weights for the changed configuration ({', '.join(config_changes)}): {len(names)} "
                f"{fault}, {min(names)} among them; leave out the fields that change them."
            )
        if names:
            raise ModelFolderError(
                f"{folder} is not a complete captioner: {len(names)} weights {fault}, {min(names)} among them; "
                "save it again or use an earlier one."
            )


def check_tokenizer(folder: str, tokenizer: PreTrainedTokenizerBase, vocab_size: int):
    """Raise a ModelFolderError if a tokenizer is not the one of its model."""
    if None in (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id):
        raise ModelFolderError(
            f"{folder} is not a complete captioner: tokenizer_config.json names no padding, first or last token; save "
            "it again or use an earlier one."
        )
    largest = max(tokenizer.get_vocab().values())
    if largest >= vocab_size:
        raise ModelFolderError(
            f"{folder} is not a complete captioner: tokenizer.json has a word with id {largest}, but the model's "
            f"vocab_size is {vocab_size}; save both together."
        )


@contextmanager
def without_progress_bars():
    """transformers shows none of its bars for the weights of small models inside the `with` block."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def one_sentence(error: Exception) -> str:
    """What an error says, in one line and without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, AttributeError | LookupError | TypeError):  # what they say is not meant for users
        return f"{type(error).__name__}: {lines[0]}".rstrip(".")
    if isinstance(error, StrictDataclassError):  # its last line is the message of the error within
        return re.sub(r"^\w+Error: ", "", lines[-1]).rstrip(".")
    return lines[0].rstrip(".")
