"""Captioners loaded from a folder or the Hub, and saved."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from transformers.utils import logging as transformers_logging

from .auto import model_types_of
from .messages import one_sentence
from .models.configuration_hub import ConfigurationError
from .models.modeling_vision import MissingBackboneError, VisionModel

NAME_IN_VISION = re.compile(r"(^|\.)vision\.")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class ModelFolderError(ValueError):
    """A folder that holds no complete captioner; the message names it and says what is missing."""


def save_model(model: PreTrainedModel, processor: ProcessorMixin, folder: str | os.PathLike) -> None:
    """Saves both into one folder that the Auto classes load."""
    with without_progress_bars():
        model.save_pretrained(folder)
        processor.save_pretrained(folder)


def find_model_folder(name: str | os.PathLike) -> str:
    """Returns the folder of a model: `name` itself, or its `best` or else `last` if it is that of a training run.

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


def read_model_type(name: str | os.PathLike) -> str | None:
    """Returns the model type of a model in a folder, a training run's folder or on the Hub; `None` if it has none.

    Raises:
        FileNotFoundError, ModelFolderError: see [`find_model_folder`]; or an unreadable configuration.
    """
    folder = find_model_folder(name)
    try:
        return PreTrainedConfig.get_config_dict(folder)[0].get("model_type")
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        raise ModelFolderError(f"{folder}: the configuration cannot be loaded ({one_sentence(error)}).") from error


def load_config(name: str | os.PathLike) -> PreTrainedConfig:
    """Returns the configuration of a captioner in a folder or on the Hub.

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
    captioners = model_types_of("captioning")
    if config.model_type not in captioners:
        raise ModelFolderError(
            f"{folder} holds a {config.model_type} model; this needs a captioner ({', '.join(captioners)})."
        )
    return config


def load_captioner(
    name: str | os.PathLike, *, new_vision: bool = False, **config_changes: Any
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner and its processor, from a model folder, a training run's folder or the Hub.

    Args:
        name: what [`find_model_folder`] takes.
        new_vision: the vision encoder that the changed configuration describes begins with new weights, whatever the
            folder has.
        config_changes: fields of the configuration that get other values.

    Returns:
        The model in evaluation mode, and the processor.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: the folder is no captioner or was not written completely.
        MissingBackboneError: the folder of a backbone that was left out of the model is not there.
        ConfigurationError: the changes are no values of their fields.
    """
    folder, saved = find_model_folder(name), load_config(name)
    config = changed_config(saved, config_changes)
    if Path(folder).is_dir() and not (Path(folder) / "tokenizer.json").is_file():
        raise ModelFolderError(f"{folder} is not a complete captioner: tokenizer.json is missing; save it again.")
    try:
        with quiet_loading():
            loaded: Any = AutoModelForImageTextToText.from_pretrained(
                folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True
            )
            model, report = loaded
            processor = AutoProcessor.from_pretrained(folder)
    except MissingBackboneError:
        raise
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        raise ModelFolderError(
            f"{folder} is not a complete captioner ({one_sentence(error)}); save it again or use an earlier one."
        ) from error
    if new_vision:
        model.base_model.vision = VisionModel(model.config.vision_config).to(model.dtype)
    before, after = saved.to_dict(), config.to_dict()
    changed = [field for field in config_changes if after[field] != before[field]]
    check_weights(folder, report, changed, NAME_IN_VISION if new_vision else None)
    check_tokenizer(folder, processor.tokenizer, config.vocab_size)
    return model.eval(), processor


def changed_config(config: PreTrainedConfig, changes: Mapping) -> PreTrainedConfig:
    """Returns the configuration with other values in some fields, checked as a new one is.

    Raises:
        ConfigurationError: a value that its field cannot have.
    """
    try:
        if not changes:
            return config
        code = {"auto_map": config.auto_map} if hasattr(config, "auto_map") else {}
        return type(config).from_dict({**config.to_dict(), **code, **changes})
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ConfigurationError(one_sentence(error)) from error


def check_weights(folder: str, report: Mapping, changed: Sequence[str], elsewhere: re.Pattern | None = None) -> None:
    """Raises a ModelFolderError if a loaded model has weights that its folder lacks, or has in another shape.

    Args:
        folder: of the model, for the message.
        report: of `from_pretrained`.
        changed: fields of the configuration that are not as the folder says.
        elsewhere: names of weights that do not come from the folder.
    """
    for fault, names in (
        ("are missing", report["missing_keys"]),
        ("have another shape than the configuration says", {name for name, *_ in report["mismatched_keys"]}),
    ):
        names = [name for name in names if elsewhere is None or not elsewhere.search(name)]
        if names and changed:
            raise ModelFolderError(
                f"{folder} has no weights for the changed configuration ({', '.join(changed)}): {len(names)} "
                f"{fault}, {min(names)} among them; leave out the fields that change them."
            )
        if names:
            raise ModelFolderError(
                f"{folder} is not a complete captioner: {len(names)} weights {fault}, {min(names)} among them; "
                "save it again or use an earlier one."
            )


def check_tokenizer(folder: str, tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> None:
    """Raises a ModelFolderError if a tokenizer is not the one of its model."""
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
def without_progress_bars() -> Iterator[None]:
    """transformers shows none of its bars for the weights of small models inside the `with` block."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Inside the `with` block transformers shows no bars and does not report on weights, which the caller looks at."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with without_progress_bars():
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
