"""New models for a training config, and trained ones to fine-tune: the part that all tasks share.

A task's `build.py` chooses the tokenizer and the fields that follow from its data; then

```python
config = new_config(kind, fields, vocab_size=len(tokenizer))
model = new_model(config, "AutoModel")
processor = new_processor(model, tokenizer, image_size)
```
"""

import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data import DataError
from ..io.files import is_stream
from ..io.messages import one_sentence
from ..loading.models import ModelFolderError, is_guest, load_config, load_model, quiet_loading
from ..loading.preprocessing import check_size_of_images, load_image_processor
from ..models.configuration_hub import ConfigurationError, HubConfig
from ..models.configuration_vision import VisionConfig
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.modeling_vision import VisionModel
from ..models.transformers_backbones import own_image_size
from ..registry import config_class, model_class, model_types_of, processor_class
from ..training.config import ConfigError, TrainingConfig, suggestion

logger = logging.getLogger(__name__)

MAX_UNKNOWN_WORDS = 0.05
"""Share of unknown words above which training warns."""
SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
FOLLOWS_FROM_DATA = {
    **dict.fromkeys(("vocab_size", *SPECIAL_TOKENS), "the vocabulary of the training captions"),
    "features_provenance": "the features that are trained on",
}


def config_class_of(model_type: str, task: str) -> Any:
    """Returns the configuration class of a model type.

    Raises:
        ConfigError: the task has no such model type (the closest one is named).
    """
    known = model_types_of(task)
    if model_type not in known:
        of_task = f"{task.replace('_', ' ')} has no model type {model_type!r}"
        raise ConfigError(f"model.model_type: {of_task}{suggestion(model_type, known)}")
    return config_class(model_type)


def check_field_names(fields: Mapping, kind: type, follows: Mapping[str, str] = FOLLOWS_FROM_DATA) -> None:
    """Raises a ConfigError for a key of section `model` that is not a field of its configuration.

    Args:
        fields: fields of the section.
        kind: class of the configuration.
        follows: fields that a user may not choose, with their source.
    """
    valid = config_fields(kind)
    for name in fields:
        if name in follows:
            raise ConfigError(f"model.{name} follows from {follows[name]}; leave it out.")
        if name not in valid:
            raise ConfigError(f"unknown key model.{name}{suggestion(name, sorted(valid), 'model')}")
    for name in ("vision_config", "text_config"):
        if not isinstance(fields.get(name, {}), Mapping | None):
            raise ConfigError(f"model.{name} must be a mapping of keys to values or null, not {fields[name]!r}.")


def config_fields(kind: type) -> set[str]:
    """Returns the fields that a configuration class declares, without those of transformers' base class."""
    own = [parent for parent in kind.__mro__ if issubclass(parent, HubConfig)]
    names = {name for parent in own for name in parent.__annotations__}
    return names & {field.name for field in dataclasses.fields(kind)}


def set_feature_size(fields: dict, kind: Any, size: int | None, data: str) -> None:
    """Sets `visual_feature_size` to that of the data for a model that reads features.

    Raises:
        ConfigError: section `model` has another one.
    """
    has_vision = (fields["vision_config"] if "vision_config" in fields else kind().vision_config) is not None
    if size is None or has_vision:
        return
    asked_for = fields.get("visual_feature_size")
    if asked_for not in (None, size):
        raise ConfigError(
            f"model.visual_feature_size is {asked_for}, but the features of {data} have dimension {size}; set "
            f"model.visual_feature_size={size}, or leave it out."
        )
    fields["visual_feature_size"] = size


def new_config(kind: Any, fields: Mapping, **follows: Any) -> Any:
    """Returns a configuration with the fields of section `model` and those that follow from the data.

    Raises:
        ConfigError: a field of the wrong type, or fields that do not fit together.
    """
    try:
        return kind(**fields, **follows)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ConfigError(f"section model: {one_sentence(error)}") from error


def new_model(config: Any, auto_class: str) -> Any:
    """Returns a new model of a configuration, on the CPU.

    Raises:
        ConfigError: its backbone cannot be used.
    """
    kind: Any = model_class(config.model_type, auto_class)
    with usable_backbone(getattr(config, "vision_config", None)):
        return kind(config)


def new_processor(model: Any, tokenizer: PreTrainedTokenizerBase, image_size: int | None) -> ProcessorMixin:
    """Returns the processor of a new model, with an image processor for its vision encoder, if it has one."""
    vision, image_processor = model.base_model.vision, None
    if vision is not None:
        image_processor = new_image_processor(vision, image_size)
        check_image_size(vision, image_processor)
    return processor_class(model.config.model_type)(image_processor=image_processor, tokenizer=tokenizer)


def config_to_change(fields: dict, task: str, follows: Mapping[str, str] = FOLLOWS_FROM_DATA) -> tuple[str, Any]:
    """Returns the folder of `init_from` and its configuration, after a check of the other fields.

    `init_from` and `model_type` are removed from the fields.
    """
    folder = fields.pop("init_from")
    config: Any = load_config(folder, task)
    if fields.pop("model_type", None) not in (None, config.model_type):
        raise ConfigError(f"model.init_from: {folder} is a {config.model_type}; set model.model_type accordingly.")
    check_field_names(fields, type(config), follows)
    return folder, config


def trained_model(
    fields: dict, task: str, follows: Mapping[str, str] = FOLLOWS_FROM_DATA, **changes: Any
) -> tuple[PreTrainedModel, Any]:
    """Loads the model that `init_from` names, with the other fields changed in its configuration, and its processor.

    Raises:
        ConfigError: unknown fields, or values that they cannot have.
    """
    folder, _ = config_to_change(fields, task, follows)
    try:
        return load_model(folder, task, **fields, **changes)
    except ConfigurationError as error:
        raise ConfigError(f"section model: {error}") from error


def set_generation_defaults(model: PreTrainedModel, settings: Any) -> None:
    """Gives `generate()` the settings of the evaluation as defaults, also in the saved model."""
    defaults: Any = model.generation_config
    defaults.num_beams = settings.num_beams
    defaults.max_new_tokens = settings.max_new_tokens
    defaults.length_penalty = settings.length_penalty if settings.num_beams > 1 else None


def trained_guest(
    config: TrainingConfig, task: str, only_ours: Iterable[str]
) -> tuple[PreTrainedModel, ProcessorMixin] | None:
    """Returns the model of transformers that `init_from` names, and its processor; `None` if it names none.

    Args:
        config: the training config.
        task: registered name of the task of the model.
        only_ours: keys, as `section.key`, that models of transformers do not have.

    Raises:
        ConfigError: one of these keys has another value than by default, or `model` has further fields.
    """
    source = config.model.get("init_from")
    if source is None or not is_guest(load_config(source, task)):
        return None
    usual = type(config)(model={"init_from": source})
    more = [f"model.{key}" for key in config.model if key != "init_from"]
    more += [key for key in only_ours if attrgetter(key)(config) != attrgetter(key)(usual)]
    if more:
        raise ConfigError(
            f"{source} is a model of transformers, which has no {', '.join(more)}; leave "
            f"{'it' if len(more) == 1 else 'them'} out."
        )
    return load_model(source, task)


@contextmanager
def usable_backbone(vision: VisionConfig | None) -> Iterator[None]:
    """Turns an error inside the `with` block, of loading a backbone's weights, into a ConfigError.

    Raises:
        ConfigError: the weights cannot be loaded.
    """
    try:
        with quiet_loading():
            yield
    except ModelFolderError:  # of the captioner around the backbone
        raise
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        if vision is None or not vision.pretrained:
            raise
        raise unusable_backbone(vision.pretrained, error) from error


def unusable_backbone(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"model.vision_config: the backbone {name} cannot be used ({one_sentence(error)}); pretrained must be the "
        "folder of a backbone or detection model itself, not of a captioner around it, or its name on the Hub."
    )


def new_image_processor(vision: VisionModel, image_size: int | None) -> CaptioningImageProcessor:
    """Returns the image processor of the source of a backbone's weights, else one with ImageNet's normalization.

    Args:
        vision: the vision encoder around the backbone.
        image_size: height and width in pixels; `None` = those of the source, or that a patch encoder was made for.

    Raises:
        ConfigError: the preprocessing is unknown, or does not suit boxes.
    """
    source = vision.config.pretrained
    if source is None:
        side = image_size or own_image_size(vision)
        if side is None:
            return CaptioningImageProcessor()
        return CaptioningImageProcessor(size={"height": side, "width": side})
    own_size = own_image_size(vision)
    try:
        return load_image_processor(source, vision.config.kind, image_size=image_size, own_size=own_size)
    except (ValueError, OSError) as error:
        raise unusable_backbone(source, error) from error


def check_image_size(vision: VisionModel | None, image_processor: BaseImageProcessor | None) -> None:
    """Raises a ConfigError if images are resized to a size that the vision encoder cannot take."""
    size = getattr(image_processor, "size", None) or {}
    if vision is not None and size.get("height") and size.get("width"):
        try:
            check_size_of_images(vision, size["height"], size["width"])
        except ValueError as error:
            raise ConfigError(str(error)) from error


def report_vocabulary(tokenizer: PreTrainedTokenizerBase, captions: list[str], is_new: bool = True) -> None:
    """Logs the size of the vocabulary and the share of words that it lacks, as a warning if that is large.

    A vocabulary that is not new belongs to a trained captioner and is not changed.
    """
    ids = tokenizer(captions, add_special_tokens=False)["input_ids"]
    number = sum(map(len, ids))
    unknown = sum(words.count(tokenizer.unk_token_id) for words in ids) / max(number, 1)
    known = len(tokenizer) - len(set(tokenizer.all_special_ids))
    message = "The vocabulary has %d words; %.1f%% of the words of the training captions are unknown to it%s."
    if unknown > MAX_UNKNOWN_WORDS:
        remedy = "lower data.min_word_count" if is_new else "a captioner without model.init_from would learn them"
        logger.warning("Warning: " + message, known, 100 * unknown, f": {remedy}")
    else:
        logger.info(message, known, 100 * unknown, "")


def fill_word_vectors(
    model: Any, tokenizer: PreTrainedTokenizerBase, path: str, dictionary: str | None, size_key: str
) -> None:
    """Puts the vectors of a file into a new model; words that the file lacks keep random vectors.

    Args:
        model, tokenizer: the new model, and its tokenizer.
        path, dictionary: see [`read_word_vectors`].
        size_key: the key of the training config for the size of a vector.

    Raises:
        ConfigError: the vectors have another size than the model's.
        DataError: the file cannot be used, or has none of the words.
    """
    vocabulary = tokenizer.get_vocab()
    found = read_word_vectors(path, dictionary, vocabulary)
    weight = model.get_input_embeddings().weight
    for word, vector in found.items():
        if len(vector) != weight.shape[1]:
            raise ConfigError(
                f"data.word_vectors: {path} has vectors of {len(vector)} numbers; set {size_key}={len(vector)}."
            )
        with torch.no_grad():
            weight[vocabulary[word]] = torch.from_numpy(vector)
    known = len(vocabulary) - len(tokenizer.all_special_ids)
    if not found:
        raise DataError(f"data.word_vectors: {path} has none of the {known} words; give vectors of lower-cased words.")
    logger.info("%s has vectors of %d of the %d words of the vocabulary.", path, len(found), known)


def read_word_vectors(path: str, dictionary: str | None, words: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the vectors of some words, as far as a file has them.

    Args:
        path: `.txt`, in each line a word, which may have blanks, and its numbers (GloVe, word2vec, fastText; a first
            line of two numbers is passed over), or `.npy`, an array `(lines, size)`.
        dictionary: the words of an `.npy` file, one a line; of equal lines the last counts.
        words: words to look up.

    Raises:
        DataError: the files cannot be used, or do not fit together.
    """
    wanted, file = set(words), Path(path).expanduser()
    for name in filter(None, (path, dictionary)):
        if is_stream(Path(name).expanduser()):  # it may never end
            raise DataError(f"data.word_vectors: {name} is a device or a pipe; name a file.")
    try:
        if file.suffix == ".npy":
            return vectors_of_array(file, dictionary, wanted)
        if dictionary is not None:
            raise DataError(f"data.dictionary is for word vectors in an .npy file, not for {path}; leave it out.")
        return vectors_of_text(file, wanted)
    except OSError as error:
        raise DataError(f"data.word_vectors: {error.filename or path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"data.word_vectors: {path} or its dictionary is not UTF-8 text.") from error


def vectors_of_array(file: Path, dictionary: str | None, wanted: set[str]) -> dict[str, np.ndarray]:
    if dictionary is None:
        raise DataError(f"{file} has vectors without their words; name the list of words with data.dictionary.")
    try:
        array = np.load(file, allow_pickle=False, mmap_mode="r")
    except ValueError as error:
        raise DataError(f"{file} is not an array of numbers that can be read without running code.") from error
    with open(Path(dictionary).expanduser(), encoding="utf-8") as words:
        lines = [word.strip() for word in words]
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) != len(lines):
        raise DataError(
            f"{file} has an array {array.dtype} {array.shape}; with the {len(lines)} lines of {dictionary} it must be "
            f"one of floats, ({len(lines)}, size)."
        )
    rows = {line: index for index, line in enumerate(lines)}
    found = {word: np.asarray(array[rows[word]], dtype=np.float32) for word in wanted & rows.keys()}
    for word, vector in found.items():
        if not np.isfinite(vector).all():
            raise DataError(f"{file}: the vector of {word!r} has values that are not finite.")
    return found


def vectors_of_text(file: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    size = None
    with open(file, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            line = line.rstrip(" \r\n")  # word2vec and fastText write a blank behind every number
            if number == 1 and line.count(" ") == 1:
                continue
            size = size or line.count(" ")
            word, *numbers = line.rsplit(" ", size)  # some words of GloVe have blanks: "at name@domain.com"
            if word not in wanted:
                continue
            try:
                vector = [float(value) for value in numbers]
            except ValueError:
                vector = []
            if not vector or len(vector) != size or not all(map(math.isfinite, vector)):
                raise DataError(f"{file}, line {number}, must have a word and {size} finite numbers.")
            found[word] = np.asarray(vector, dtype=np.float32)
    return found
