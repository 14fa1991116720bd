"""Models of any task, loaded from a folder or the Hub with their processors, and saved.

```python
model, processor = load_model("runs/scenes", "captioning")  # the best model of a training run
```
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoProcessor,
    AutoTokenizer,
    BaseImageProcessor,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.models.auto import modeling_auto
from transformers.utils import logging as transformers_logging

from ..guests.checkpoints import task_of_guest, whole_processor
from ..guests.dual_encoders import DUAL_ENCODERS
from ..guests.exported import ExportedModel, is_exported
from ..io.bounds import is_finite
from ..io.files import give_usual_modes
from ..io.messages import one_sentence
from ..io.packaged import ModelFolderError, find_model_folder
from ..io.weight_sources import complete_sources, remember_source, write_licence
from ..models.configuration_hub import ConfigurationError, MissingBackboneError
from ..models.modeling_vision import VisionModel
from ..registry import MODEL_TYPES, is_command_line, model_types_of, own_model_types, processor_class, register
from .limits import check_image_processor, check_weights_are_finite, count, parameters_of

if is_command_line():  # which has not, until it loads a model
    register()

WEIGHTS = "*.safetensors"
NAME_IN_VISION = re.compile(r"(^|\.)vision\.")
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
PROCESSORS = (AutoProcessor, AutoTokenizer, AutoImageProcessor)
OF_TRANSFORMERS: dict[str | None, str] = {
    "captioning": ", or a captioner of transformers",
    "retrieval": ", or a dual encoder of transformers",
}
"""End of the list of models for a task."""

# While transformers loads a model, it replaces functions of the whole process, such as `tie_weights`. Of two threads
# that load at once, the second would keep the replacements for good: later models would have untied weights.
LOADING = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)


def incomplete(folder: str, fault: str) -> ModelFolderError:
    return ModelFolderError(f"{folder} is not a complete model: {fault}; save it again or use an earlier one.")


def save_model(model: PreTrainedModel, processor: Any, folder: str | os.PathLike) -> None:
    """Saves a model and its processor, if it has one, into one folder that the Auto classes load.

    The licences of the models that it is derived from go along, see [`sources_of`].
    """
    complete_sources(model)
    with without_progress_bars():
        model.save_pretrained(folder)
        if processor is not None:
            processor.save_pretrained(folder)
    write_licence(model, folder)
    give_usual_modes(Path(folder), WEIGHTS)


def derive_from(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Records that a model has weights of other models, or learns from them; see [`sources_of`].

    Args:
        model: the derived model.
        names: names for [`find_model_folder`], or of packaged backbones.
    """
    for name in names:
        with suppress(FileNotFoundError, ModelFolderError):
            name = find_model_folder(name)
        remember_source(model, name, fetch=True)


def read_config_file(folder: str) -> dict:
    try:
        return dict(PreTrainedConfig.get_config_dict(folder)[0])
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        if not Path(folder).is_dir():
            reason = f"({one_sentence(error)})"
            if HF_HUB_OFFLINE:
                reason = "from the cache; HF_HUB_OFFLINE keeps the Hub from being asked: unset it, or name a folder"
            raise ModelFolderError(
                f"There is no model folder {folder}, and no such model on the Hub was loaded {reason}."
            ) from error
        raise ModelFolderError(f"{folder}: the configuration cannot be loaded ({one_sentence(error)}).") from error


def load_config(name: str | os.PathLike, task: str | None = None) -> PreTrainedConfig:
    """Returns the configuration of a model in a folder or on the Hub.

    Args:
        name: see [`find_model_folder`].
        task: the task of the model; any task if `None`.

    Raises:
        FileNotFoundError, ModelFolderError: see [`find_model_folder`]; an unreadable configuration, or one of
            another task.
    """
    folder = find_model_folder(name)
    described = read_config_file(folder)
    model_type, found = described.get("model_type"), task_of(described)
    known = tuple(MODEL_TYPES) if task is None else model_types_of(task)
    if found != task if task is not None else (found is None and model_type not in known):
        wanted = "one of this package" if task is None else f"one for {task}"
        code = "" if model_type in tuple(MODEL_TYPES) else needed_code(described)
        raise ModelFolderError(
            f"{folder} holds a {model_type} model{code}; this needs {wanted} ({', '.join(known)}"
            f"{OF_TRANSFORMERS.get(task, '')})."
        )
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)  # nosec B615  # the user's choice, no code
    except Exception as error:
        raise ModelFolderError(f"{folder}: the configuration cannot be loaded ({one_sentence(error)}).") from error


def is_guest(config: PreTrainedConfig) -> bool:
    """Returns whether a model is one of transformers, a captioner or a dual encoder, registered or not."""
    return config.model_type not in own_model_types()


def reads_images(config: Any) -> bool:
    """Returns whether a model has a vision encoder."""
    return is_guest(config) or config.vision_config is not None


def task_of(config: PreTrainedConfig | Mapping) -> str | None:
    """Returns the name of the task that a model is for; `None` for parts of models, and for models of other kinds.

    Args:
        config: its configuration, or the contents of its config.json.
    """
    described = config.to_dict() if isinstance(config, PreTrainedConfig) else config
    model_type = str(described.get("model_type"))
    entry = MODEL_TYPES.get(model_type)
    if entry is None:
        return task_of_guest(described)
    if model_type not in own_model_types() and entry.task in OF_TRANSFORMERS:  # BLIP has models for both
        return task_of_guest(described) or entry.task
    return entry.task


def count_parameters(name: str | os.PathLike) -> int:
    """Returns the number of parameters of a model in a folder or on the Hub, from its configuration alone.

    Raises:
        FileNotFoundError, ModelFolderError: see [`load_config`]; a configuration of no model.
    """
    config = load_config(name)
    model_loader, _ = auto_classes_of(config)
    try:
        return count(parameters_of(lambda: model_loader.from_config(config, trust_remote_code=False)).values())
    except Exception as error:  # transformers and torch say in many ways what does not fit
        raise ModelFolderError(f"{name}: no model can be made of its configuration ({one_sentence(error)}).") from error


def needed_code(described: Mapping) -> str:
    """Returns the end of a sentence on the code that a checkpoint brings, which is never run here; "" without code."""
    auto_map = described.get("auto_map")
    if not auto_map:
        return ""
    classes = auto_map.values() if isinstance(auto_map, Mapping) else [auto_map]
    return (
        f" with code of its own ({', '.join(map(str, classes))}), which is not run here: read it, and if you trust it, "
        "load it in Python with from_pretrained(..., trust_remote_code=True)"
    )


def code_of_processor(folder: str) -> dict:
    """Returns the `auto_map` of the tokenizer and the other parts of a processor, by file."""
    found = {}
    for file in sorted(Path(folder).glob("*_config.json")):
        with suppress(ValueError, OSError, AttributeError, LookupError, TypeError):
            settings = json.loads(file.read_text(encoding="utf-8"))
            found[file.name] = settings.get("auto_map") or settings["image_processor"].get("auto_map")
    return {"auto_map": {file: f"{code} in {file}" for file, code in found.items() if code}}


def load_captioner(
    name: str | os.PathLike, *, new_vision: bool = False, **config_changes: Any
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner and its processor; see [`load_model`]."""
    return load_model(name, "captioning", new_vision=new_vision, **config_changes)


def load_model(
    name: str | os.PathLike, task: str | None = None, *, new_vision: bool = False, **config_changes: Any
) -> tuple[PreTrainedModel, Any]:
    """Loads a model and its processor, from a model folder, a training run's folder or the Hub.

    Args:
        name: see [`find_model_folder`].
        task: the task of the model; any task if `None`.
        new_vision: gives the vision encoder, as the changed configuration describes it, new weights in place of the
            folder's.
        config_changes: fields of the configuration that get other values.

    Returns:
        The model in evaluation mode, and its processor; for a model type without one its tokenizer or image processor,
        or `None`.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: the folder has no such model or was not written completely.
        MissingBackboneError: the folder of a backbone that was left out of the model is not there.
        ConfigurationError: the changes are no values of their fields.
    """
    folder, saved = find_model_folder(name), load_config(name, task)
    if is_exported(folder):
        return load_exported(folder, saved)
    config = changed_config(saved, config_changes)
    model_loader, processor_loader = auto_classes_of(config)
    guest = is_guest(config)
    has_tokenizer = processor_loader in (AutoProcessor, AutoTokenizer) and not guest
    is_folder = Path(folder).is_dir()
    if has_tokenizer and is_folder and not Path(folder, "tokenizer.json").is_file():
        raise incomplete(folder, "tokenizer.json is missing")
    if Path(folder, "adapter").is_dir() and not any(Path(folder).glob("*.safetensors")):
        raise ModelFolderError(f"{folder} holds adapters alone; train with lora.merge=true, or load them with PEFT.")
    with loading_faults(folder, processor_loader), quiet_loading():
        model, report = model_loader.from_pretrained(
            folder,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
        )
        check_weights_are_finite(model)
        if model.can_generate() and not guest and is_folder:
            GenerationConfig.from_pretrained(folder)  # without a file that can be read, the model would have defaults
        processor: Any = None
        if guest:
            processor = whole_processor(folder)
            check_longest(folder, processor.tokenizer)
        elif processor_loader is not None:
            processor = load_processor(processor_loader, folder)
        image_processor = getattr(processor, "image_processor", processor)
        if isinstance(image_processor, BaseImageProcessor):
            check_image_processor(image_processor)
    if new_vision:
        model.base_model.vision = VisionModel(model.config.vision_config).to(model.dtype)
    before, after = saved.to_dict(), config.to_dict()
    changed = [field for field in config_changes if after[field] != before[field]]
    check_weights(folder, report, changed, NAME_IN_VISION if new_vision else None)
    if has_tokenizer:
        check_tokenizer(folder, getattr(processor, "tokenizer", processor), config)
    remember_source(model, folder)
    return model.eval(), processor


@contextmanager
def loading_faults(folder: str, processor_loader: Any) -> Iterator[None]:
    """Raises the errors of libraries inside the `with` block as ModelFolderErrors of a folder."""
    try:
        yield
    except (MissingBackboneError, ModelFolderError):
        raise
    except ImportError as error:
        raise ModelFolderError(f"{folder} needs a package that is not installed: {one_sentence(error)}.") from error
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        if "trust_remote_code" in str(error):
            what = getattr(processor_loader, "__name__", "AutoModel").removeprefix("Auto").lower()
            raise ModelFolderError(f"{folder} holds a {what}{needed_code(code_of_processor(folder))}.") from error
        raise incomplete(folder, one_sentence(error)) from error


def load_exported(folder: str, config: PreTrainedConfig) -> tuple[Any, Any]:
    """Returns an exported dual encoder and its processor."""
    try:
        model = ExportedModel(folder, config)
    except ValueError as error:
        raise ModelFolderError(str(error)) from error
    remember_source(model, folder)
    if is_guest(config):
        return model.eval(), whole_processor(folder)
    return model.eval(), load_processor(processor_class(config.model_type), folder)


def load_processor(loader: Any, folder: str) -> Any:
    try:
        found = loader.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        files = [file for file in PROCESSOR_FILES if (Path(folder) / file).is_file()]
        if not files or "trust_remote_code" in str(error):
            raise
        raise incomplete(folder, f"{' or '.join(files)} cannot be used ({one_sentence(error)})") from error
    if loader is AutoProcessor and not isinstance(found, ProcessorMixin):
        raise incomplete(folder, "processor_class in processor_config.json names no processor")
    return found


def auto_classes_of(config: Any) -> tuple[Any, Any]:
    """Returns the Auto classes of a model, with its head if it has one, and of its processor, or None without one."""
    known = getattr(type(config), "remote_classes", None)
    if known is None:  # a model of transformers, which is saved with the name of its class
        named = (config.architectures or [""])[0]
        if named in DUAL_ENCODERS and hasattr(transformers, named):
            return ClassLoader(getattr(transformers, named)), AutoProcessor
        heads = sorted(name for name in modeling_auto.__all__ if name.startswith("AutoModel"))
        head = next((name for name in heads if head_class(name, config) == named), "AutoModel")
        return getattr(transformers, head), AutoProcessor
    head = next((name for name in known if name.startswith("AutoModelFor")), "AutoModel")
    processor = next((kind for kind in PROCESSORS if kind.__name__ in known), None)
    if processor is None and getattr(type(config), "has_tokenizer", False):
        processor = AutoTokenizer
    return getattr(transformers, head), processor


class ClassLoader:
    """Loads models of a class that no Auto class has, by the methods of an Auto class."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def from_config(self, config: PreTrainedConfig, trust_remote_code: bool = False) -> PreTrainedModel:
        return self.kind(config)

    def from_pretrained(self, folder: str, trust_remote_code: bool = False, **options: Any) -> Any:
        return self.kind.from_pretrained(folder, **options)


def head_class(auto_class: str, config: Any) -> str | None:
    """Returns the name of the class that an Auto class has for a configuration, if any."""
    found = getattr(transformers, auto_class)._model_mapping.get(type(config), None)
    return getattr(found[0] if isinstance(found, tuple) else found, "__name__", None)


def changed_config(config: PreTrainedConfig, changes: Mapping) -> PreTrainedConfig:
    """Returns the configuration with some fields changed, and checked.

    Raises:
        ConfigurationError: a value that its field cannot have.
    """
    if not changes:
        return config
    if hasattr(config, "refuse_unknown_fields"):
        config.refuse_unknown_fields(changes)
    try:
        code = {"auto_map": config.auto_map} if hasattr(config, "auto_map") else {}
        return type(config).from_dict({**config.to_dict(), **code, **changes})
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ConfigurationError(one_sentence(error)) from error


def check_weights(folder: str, report: Mapping, changed: Sequence[str], elsewhere: re.Pattern | None) -> None:
    """Raises a ModelFolderError if a loaded model has weights that its folder lacks, or has in another shape.

    Args:
        folder: of the model, for the message.
        report: of `from_pretrained`.
        changed: fields of the configuration that differ from the folder's.
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
            raise incomplete(folder, f"{len(names)} weights {fault}, {min(names)} among them")


def check_longest(folder: str, tokenizer: PreTrainedTokenizerBase) -> None:
    longest = tokenizer.model_max_length
    if not is_finite(longest) or longest < 1 or longest != int(longest):
        raise incomplete(folder, f"model_max_length in tokenizer_config.json is {longest!r:.60}, no positive number")


def check_tokenizer(folder: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raises a ModelFolderError if the special tokens, ids or length of a tokenizer do not fit its model."""
    named = ("pad_token", "bos_token", "eos_token")
    special_tokens = [name for name in named if getattr(config, f"{name}_id", None) is not None]
    if any(getattr(tokenizer, f"{name}_id") is None or not getattr(tokenizer, name) for name in special_tokens):
        raise incomplete(folder, "tokenizer_config.json names no padding, first or last token")
    check_longest(folder, tokenizer)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        ids = getattr(config, name, None)
        numbers = ids if isinstance(ids, list) else [ids]
        if any(one is not None and not 0 <= one < config.vocab_size for one in numbers):
            raise ModelFolderError(
                f"{folder}: {name} in config.json is {ids}, but the model's vocab_size is {config.vocab_size}."
            )
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        raise incomplete(
            folder, f"tokenizer.json has a word with id {largest}, but the model's vocab_size is {config.vocab_size}"
        )


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hides transformers' progress bars, which the weights of small models do not need, inside the `with` block."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides transformers' progress bars and its report on weights, which the caller checks, inside the `with` block.

    Threads take turns in it.
    """
    with LOADING:
        verbosity = transformers_logging.get_verbosity()
        transformers_logging.set_verbosity_error()
        try:
            with without_progress_bars():
                yield
        finally:
            transformers_logging.set_verbosity(verbosity)
