"""Loads models of any task with their processors from a folder or the Hub, and saves them."""

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from ..guests.captioners import image_text_processor, task_of_guest
from ..guests.dual_encoders import ExportedModel, is_exported
from ..io.files import give_usual_modes
from ..io.messages import one_sentence
from ..io.packaged import ModelFolderError, complete_sources, find_model_folder, remember_source, write_licence
from ..models.configuration_hub import ConfigurationError
from ..models.modeling_vision import VisionModel
from ..registry import MODEL_TYPES, is_command_line, own_model_types, register

if is_command_line():  # the command line registers models only here
    register()

WEIGHTS = "*.safetensors"
NAME_IN_VISION = re.compile(r"(^|\.)vision\.")
PROCESSORS = (AutoProcessor, AutoTokenizer, transformers.AutoImageProcessor)

# While transformers loads a model, it replaces functions of the whole process, such as `tie_weights`. If two threads
# loaded models at the same time, the second would keep the replacements: later models would have untied weights.
LOADING = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)


def save_model(model: PreTrainedModel, processor: Any, folder: str | os.PathLike, **options: Any) -> None:
    """Saves a model, its processor if any, and the licences of its sources; `options` are for `save_pretrained`."""
    complete_sources(model)
    with without_weight_bars():
        model.save_pretrained(folder, **options)
        if processor is not None:
            processor.save_pretrained(folder)
    write_licence(model, folder)
    give_usual_modes(Path(folder), WEIGHTS)


def derive_from(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Records that a model has weights of other models or packaged backbones, or is trained with their outputs."""
    for name in names:
        with suppress(FileNotFoundError, ModelFolderError):
            name = find_model_folder(name)
        remember_source(model, name, fetch=True)


def read_config_file(folder: str) -> dict:
    try:
        if not (Path(folder).is_dir() or try_to_load_from_cache(folder, "config.json") or HF_HUB_OFFLINE):
            check_hub_model(folder)
        return dict(PreTrainedConfig.get_config_dict(folder)[0])
    except OSError as error:
        if Path(folder).is_dir():
            raise
        reason = f"({one_sentence(error)})"
        if HF_HUB_OFFLINE:
            reason = "from the cache; HF_HUB_OFFLINE disables downloads: unset it, or give a folder"
        raise ModelFolderError(f"{folder} is not a folder, and could not be loaded as a Hub model {reason}.") from error


def check_hub_model(repo_id: str) -> None:
    """Raises a ConnectionError if the Hub cannot be reached; transformers would retry for half a minute."""
    try:
        get_hf_file_metadata(hf_hub_url(repo_id, "config.json"))
    except OSError:  # an answer of the Hub; transformers reports it
        pass
    except Exception as error:
        raise ConnectionError(f"the Hub cannot be reached: {one_sentence(error)}") from error


def load_config(name: str | os.PathLike, task: str | None = None) -> PreTrainedConfig:
    """Returns the configuration of a model in a folder or on the Hub; raises a ModelFolderError for another task."""
    folder = find_model_folder(name)
    described = read_config_file(folder)
    model_type, its_task = described.get("model_type"), task_of(described)
    known = own_model_types(task)
    if its_task != task if task is not None else (its_task is None and model_type not in known):
        needed = "one of this package" if task is None else f"one for {task}"
        code = "" if model_type in MODEL_TYPES else needed_code(described)
        raise ModelFolderError(f"{folder} holds a {model_type} model{code}; give {needed}, such as {', '.join(known)}.")
    return AutoConfig.from_pretrained(folder, trust_remote_code=False)  # nosec B615  # its code is not run


def is_guest(config: PreTrainedConfig) -> bool:
    """Returns whether a model is a captioner or a dual encoder of transformers, registered or not."""
    return config.model_type not in own_model_types()


def reads_images(config: Any) -> bool:
    """Returns whether a model has a vision encoder."""
    return is_guest(config) or config.vision_config is not None


def task_of(config: PreTrainedConfig | Mapping) -> str | None:
    """Returns the task of a model from its configuration or the contents of config.json; None if there is none."""
    described = config.to_dict() if isinstance(config, PreTrainedConfig) else config
    entry = MODEL_TYPES.get(str(described.get("model_type")))
    return task_of_guest(described) if entry is None else entry.task


def count_parameters(name: str | os.PathLike) -> int:
    """Returns the number of parameters of a model in a folder or on the Hub, from its configuration alone."""
    config = load_config(name)
    model_loader, _ = auto_classes_of(config)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = getattr(model_loader, "from_config", model_loader)(config)
    return sum(weights.numel() for weights in model.parameters())


def needed_code(described: Mapping) -> str:
    """Returns the end of an error about code in a checkpoint, which is never run here; "" if there is no code."""
    if not described.get("auto_map"):
        return ""
    return (
        f" with custom code ({described['auto_map']}), which is not run here: read it, and if you trust it, load "
        "it in Python with from_pretrained(..., trust_remote_code=True)"
    )


def load_captioner(
    name: str | os.PathLike, *, new_vision: bool = False, **config_changes: Any
) -> tuple[PreTrainedModel, transformers.ProcessorMixin]:
    """Loads a captioner and its processor; see [`load_model`]."""
    return load_model(name, "captioning", new_vision=new_vision, **config_changes)


def load_model(
    name: str | os.PathLike, task: str | None = None, *, new_vision: bool = False, **config_changes: Any
) -> tuple[PreTrainedModel, Any]:
    """Loads a model and its processor, from a model folder, a training run's folder or the Hub.

    Args:
        name: see [`find_model_folder`].
        task: the task of the model; any task if `None`.
        new_vision: initializes a new vision encoder from the changed configuration, without the folder's weights.
        config_changes: new values of fields of the configuration.

    Returns:
        The model in evaluation mode, and its processor (or else its tokenizer, its image processor, or `None`).

    Raises:
        FileNotFoundError: the folder does not exist.
        ModelFolderError: the folder has no such model or is incomplete.
        MissingBackboneError: the weights of a backbone are not in the model's folder, and the backbone is missing.
        ConfigurationError: a changed value is invalid.
    """
    folder, saved = find_model_folder(name), load_config(name, task)
    config = changed_config(saved, config_changes)
    guest, (model_loader, processor_loader) = is_guest(config), auto_classes_of(config)
    if is_exported(folder):
        exported: Any = ExportedModel(folder, saved)
        remember_source(exported, folder)
        guest_processor = image_text_processor(folder) if guest else None
        return exported.eval(), guest_processor or AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    with quiet_loading():
        try:
            model, report = model_loader.from_pretrained(
                folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True, trust_remote_code=False
            )
        except SafetensorError as error:
            raise ModelFolderError(f"The weights in {folder} cannot be read ({error}); download them again.") from error
        if model.can_generate() and not guest and Path(folder).is_dir():
            GenerationConfig.from_pretrained(folder)  # an unreadable file would mean defaults
        processor: Any
        if guest:
            processor = image_text_processor(folder)
        else:
            processor = processor_loader and processor_loader.from_pretrained(folder, trust_remote_code=False)
    if new_vision:
        model.base_model.vision = VisionModel(model.config.vision_config).to(model.dtype)
    before, after = saved.to_dict(), config.to_dict()
    changed = [field for field in config_changes if after[field] != before[field]]
    check_weights(folder, report, changed, but_vision=new_vision)
    if processor_loader in (AutoProcessor, AutoTokenizer) and not guest:
        check_tokenizer(folder, getattr(processor, "tokenizer", processor), config)
    remember_source(model, folder)
    return model.eval(), processor


def auto_classes_of(config: Any) -> tuple[Any, Any]:
    """Returns the classes that load a model, with its head if it has one, and its processor (None if it has none)."""
    known = getattr(type(config), "remote_classes", None)
    if known is None:  # a model of transformers, or one registered with its Auto classes
        default = "AutoModelForImageTextToText" if task_of(config) == "captioning" else "AutoModel"
        named = (config.architectures or [default])[0]
        return getattr(transformers, named, None) or getattr(transformers, default), AutoProcessor
    head = next((name for name in known if name.startswith("AutoModelFor")), "AutoModel")
    processor = next((kind for kind in PROCESSORS if kind.__name__ in known), None)
    if processor is None and getattr(type(config), "has_tokenizer", False):
        processor = AutoTokenizer
    return getattr(transformers, head), processor


def changed_config(config: PreTrainedConfig, changes: Mapping) -> PreTrainedConfig:
    """Returns the configuration with some fields changed; raises a ConfigurationError for an invalid value."""
    if not changes:
        return config
    if hasattr(config, "refuse_unknown_fields"):
        config.refuse_unknown_fields(changes)
    try:
        code = {"auto_map": config.auto_map} if hasattr(config, "auto_map") else {}
        return type(config).from_dict({**config.to_dict(), **code, **changes})
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ConfigurationError(one_sentence(error)) from error


def check_weights(folder: str, report: Mapping, changed: Sequence[str], but_vision: bool) -> None:
    """Raises a ModelFolderError if weights of a loaded model are missing in its folder or have another shape."""
    names = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    if but_vision:
        names = {name for name in names if not NAME_IN_VISION.search(name)}
    if names:
        changes_text = f" with the changed {', '.join(changed)}" if changed else ""
        lacks = f"{len(names)} weights are missing or have another shape, including {min(names)}"
        raise ModelFolderError(f"{folder} is not a complete model{changes_text}: {lacks}.")


def check_tokenizer(folder: str, tokenizer: transformers.PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raises a ModelFolderError for a tokenizer of another model, or one that lacks special tokens of this model."""
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if getattr(config, name, None) is not None and getattr(tokenizer, name) is None:
            raise ModelFolderError(f"{folder}: tokenizer_config.json is missing or has no {name.removesuffix('_id')}.")
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        limit = f"the model's vocab_size is {config.vocab_size}"
        raise ModelFolderError(f"{folder}: tokenizer.json has a word with id {largest}, but {limit}.")


@contextmanager
def without_weight_bars() -> Iterator[None]:
    """Hides transformers' progress bars for weights inside the `with` block."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides transformers' progress bars and its report on weights inside the `with` block; one thread at a time."""
    with LOADING:
        verbosity = transformers_logging.get_verbosity()
        transformers_logging.set_verbosity_error()
        try:
            with without_weight_bars():
                yield
        finally:
            transformers_logging.set_verbosity(verbosity)
