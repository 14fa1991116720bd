"""Makes or loads the model of a training config, and checks arguments of `generate()`."""

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BaseImageProcessor, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data import DataError
from ..extraction.vision import load_image_processor
from ..io import DEFAULT_CAPTION_LENGTH
from ..languages import ENGLISH, language_of
from ..loading.models import is_guest, load_config, load_model, quiet_loading
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.modeling_vision import VisionModel
from ..models.transformers_backbones import check_size, own_image_size
from ..registry import model_class, own_model_types
from ..training.config import ConfigError, TrainingConfig, suggestion
from .settings import GenerationSettings

logger = logging.getLogger(__name__)

MAX_UNKNOWN = 0.5  # maximum share of the words of captions outside of a trained model's vocabulary
SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
FOLLOWS_FROM_DATA = {
    **dict.fromkeys(("vocab_size", *SPECIAL_TOKENS), "the vocabulary of the training captions"),
    "features_provenance": "the features that are trained on",
}


def new_config_class(fields: dict, task: str, follows: Mapping[str, str] = FOLLOWS_FROM_DATA) -> Any:
    """Returns the configuration class of the section `model`; removes the key `model_type` from its fields."""
    model_type, known = fields.pop("model_type"), own_model_types(task)
    if model_type not in known:
        problem = f"{task.replace('_', ' ')} has no model type {model_type!r}"
        raise ConfigError(f"model.model_type: {problem}{suggestion(model_type, known)}")
    check_fields(fields, follows)
    return model_class(model_type, "AutoConfig")


def check_fields(fields: Mapping, follows: Mapping[str, str]) -> None:
    for name in fields:
        if name in follows:
            raise ConfigError(f"model.{name} follows from {follows[name]}; leave it out.")


def set_feature_size(fields: dict, kind: Any, size: int | None, data: str) -> None:
    """Sets `visual_feature_size` to the feature dimension of the data, for a model that reads features."""
    has_vision = (fields["vision_config"] if "vision_config" in fields else kind().vision_config) is not None
    if size is None or has_vision:
        return
    chosen = fields.get("visual_feature_size") or size
    if chosen != size:
        raise ConfigError(f"model.visual_feature_size is {chosen}, but the features of {data} have dimension {size}.")
    fields["visual_feature_size"] = size


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Returns the configuration fields that follow from the tokenizer of a text-generating model."""
    tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return {**tokens, "decoder_start_token_id": tokenizer.bos_token_id, "vocab_size": len(tokenizer)}


def new_model(config: Any, auto_class: str) -> Any:
    """Returns a new model of a configuration, on the CPU, with the weights of its backbone."""
    with quiet_loading():
        return model_class(config.model_type, auto_class)(config)


def new_processor(model: Any, tokenizer: PreTrainedTokenizerBase, image_size: int | None) -> ProcessorMixin:
    """Returns the processor of a new model; it has an image processor if the model has a vision encoder."""
    vision = model.base_model.vision
    image_processor = None if vision is None else new_image_processor(vision, image_size)
    return model_class(model.config.model_type, "AutoProcessor")(image_processor=image_processor, tokenizer=tokenizer)


def new_image_processor(vision: VisionModel, image_size: int | None) -> CaptioningImageProcessor:
    """Returns the image processor that belongs to a backbone's weights, or one with ImageNet's normalization."""
    source = vision.config.pretrained
    if source is not None:
        processor = load_image_processor(source, vision.config.kind, image_size, vision)
    else:
        side = image_size or own_image_size(vision)
        size: Any = {"size": {"height": side, "width": side}} if side else {}
        processor = CaptioningImageProcessor(**size)
    check_image_size(vision, processor)
    return processor


def check_image_size(vision: VisionModel, image_processor: BaseImageProcessor) -> None:
    """Raises a ValueError if the vision encoder cannot process the size of resized images."""
    size: Any = getattr(image_processor, "size", None) or {}
    if size.get("height") and size.get("width"):
        check_size(vision.backbone, size["height"], size["width"])


def config_to_change(fields: dict, task: str, follows: Mapping[str, str] = FOLLOWS_FROM_DATA) -> tuple[str, Any]:
    """Returns the folder of `init_from` and its configuration; removes `init_from` and `model_type` from the fields."""
    folder = fields.pop("init_from")
    config: Any = load_config(folder, task)
    if fields.pop("model_type", None) not in (None, config.model_type):
        raise ConfigError(f"model.init_from: {folder} is a {config.model_type} model; set model.model_type to it.")
    check_fields(fields, follows)
    return folder, config


def trained_model(
    fields: dict, task: str, follows: Mapping[str, str] = FOLLOWS_FROM_DATA, **changes: Any
) -> tuple[PreTrainedModel, Any]:
    """Loads the model in `init_from`, with the other fields changed in its configuration, and its processor."""
    folder, _ = config_to_change(fields, task, follows)
    return load_model(folder, task, **fields, **changes)


def trained_guest(
    config: TrainingConfig, task: str, only_ours: Iterable[str]
) -> tuple[PreTrainedModel, ProcessorMixin] | None:
    """Returns the transformers model in `init_from`, if it is one; the keys `only_ours` must have their defaults."""
    source = config.model.get("init_from")
    if source is None or not is_guest(load_config(source, task)):
        return None
    usual = type(config)(model={"init_from": source})
    more = [f"model.{key}" for key in config.model if key != "init_from"]
    more += [key for key in only_ours if attrgetter(key)(config) != attrgetter(key)(usual)]
    if more:
        raise ConfigError(f"{source} is a model of transformers and does not support {', '.join(more)}; leave it out.")
    return load_model(source, task)


def check_language(config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises a ConfigError for a language or tokenizer without effect: a trained model keeps its tokenizer."""
    units = tokenizer.init_kwargs.get("units") or "words"
    for key, usual, actual in (("language", ENGLISH, language_of(tokenizer)), ("tokenizer", "words", units)):
        setting = getattr(config.data, key)
        if setting.partition("-")[0] not in (usual, actual.partition("-")[0]):
            raise ConfigError(
                f"data.{key}={setting} has no effect: the trained model has {actual}. Leave it out, or train a new "
                "model (docs/languages.md)."
            )


def unknown_share(captions: Sequence[str], tokenizer: PreTrainedTokenizerBase, is_trained: bool = True) -> float:
    """Returns the share of unknown words in captions; raises a DataError if it is too large for a trained model."""
    ids = tokenizer(list(captions), add_special_tokens=False)["input_ids"] if len(captions) else []
    share = sum(words.count(tokenizer.unk_token_id) for words in ids) / max(sum(map(len, ids)), 1)
    if is_trained and share > MAX_UNKNOWN:
        raise DataError(
            f"{share:.0%} of the words of the training captions are unknown to the trained model; its language is "
            f"{language_of(tokenizer)}. Train a new model for captions in another language (docs/languages.md)."
        )
    return share


def report_vocabulary(config: Any, tokenizer: PreTrainedTokenizerBase, captions: list[str]) -> None:
    """Logs the size of the vocabulary and the share of unknown words; a trained model must have few of them."""
    check_language(config, tokenizer)
    is_trained = not {"init_from", "pretrained_language_model", "text_pretrained"}.isdisjoint(config.model)
    unknown = unknown_share(captions, tokenizer, is_trained)
    known = len(tokenizer) - len(set(tokenizer.all_special_ids))
    message = f"The vocabulary has {known} words; {unknown:.1%} of the words of the training captions are unknown."
    if unknown > 0.05:
        logger.warning("Warning: %s", message)
    else:
        logger.info("%s", message)


def fill_word_vectors(model: Any, tokenizer: PreTrainedTokenizerBase, settings: Any, size_key: str) -> None:
    """Copies `data.word_vectors`, if any, into a new model; words that are not in the file keep random vectors."""
    path = settings.word_vectors
    if path is None:
        return
    vocabulary = tokenizer.get_vocab()
    vectors = read_word_vectors(path, settings.dictionary, vocabulary)
    known = len(vocabulary) - len(tokenizer.all_special_ids)
    if not vectors:
        raise DataError(f"data.word_vectors: {path} has none of the {known} words; give vectors of lower-cased words.")
    weight = model.get_input_embeddings().weight
    for word, vector in vectors.items():
        if len(vector) != weight.shape[1]:
            raise ConfigError(f"data.word_vectors has vectors of {len(vector)} numbers; set {size_key}={len(vector)}.")
        with torch.no_grad():
            weight[vocabulary[word]] = torch.from_numpy(vector)
    logger.info("%s has vectors of %d of the %d words of the vocabulary.", path, len(vectors), known)


def read_word_vectors(path: str, dictionary: str | None, words: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the vectors of those words that are in a file.

    A `.txt` file has a word and its numbers in each line (GloVe, word2vec, fastText), optionally after a line with two
    numbers. An `.npy` file has an array `(lines, size)`; its words are the lines of `dictionary`, and the last of equal
    lines counts.
    """
    vocabulary, file = set(words), Path(path).expanduser()
    if file.suffix == ".npy":
        if dictionary is None:
            raise DataError(f"{file} has vectors but no words; give the list of words with data.dictionary.")
        array = np.load(file, allow_pickle=False, mmap_mode="r")
        with open(Path(dictionary).expanduser(), encoding="utf-8") as file_of_words:
            lines = [line.strip() for line in file_of_words]
        if len(array) != len(lines):
            raise DataError(f"{file} has {len(array)} vectors, but {dictionary} has {len(lines)} words.")
        places = {line: place for place, line in enumerate(lines)}
        return {word: np.asarray(array[places[word]], dtype=np.float32) for word in vocabulary & places.keys()}
    vectors: dict[str, np.ndarray] = {}
    size = None
    with open(file, encoding="utf-8", newline="\n") as text:
        for number, line in enumerate(text, start=1):
            line = line.rstrip(" \r\n")  # word2vec and fastText write a space after every number
            if number == 1 and line.count(" ") == 1:
                continue
            size = size or line.count(" ")
            word, *numbers = line.rsplit(" ", size)  # some words of GloVe have spaces: "at name@domain.com"
            if word in vocabulary:
                vectors[word] = np.array(numbers, dtype=np.float32)
    return vectors


WORDS = {"required_words", "forbidden_words"}  # arguments of `hf_ngsan.models.decoding`
CONTRASTIVE = "penalty_alpha"  # transformers would load its search as code from the Hub
TEXTS = ("cache_implementation", "early_stopping", "stop_strings")  # arguments that may be text


def generation_keys() -> set[str]:
    """Returns the arguments of `generate()` that change the texts but not the type of the output."""
    other = ("_", "output_", "return_", "transformers_version", CONTRASTIVE)
    return WORDS | {*(name for name in vars(GenerationConfig()) if not name.startswith(other))}


def checked_generation(arguments: Mapping[str, Any], defaults: Any, several: bool = False) -> dict[str, Any]:
    """Checks arguments of `generate()` or of the pipelines, which override the model's generation config; returns them.

    Raises a ValueError for an unknown argument, a text in place of a number, or an argument without effect, such as
    `length_penalty` with one beam; and for `num_return_sequences` if an input cannot have `several` texts.
    """
    known = generation_keys() - ({"num_return_sequences"} if not several else set())
    for name, value in arguments.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {close[0]}?" if close else "leave it out."
            raise ValueError(f"generate() has no argument {name!r:.60}; {advice}")
        if isinstance(value, str) and name not in TEXTS:
            raise ValueError(f"{name} is {value!r:.60}, which is neither a number nor true or false.")
    if "diversity_penalty" in arguments and "num_beam_groups" not in arguments:
        raise ValueError("diversity_penalty has no effect without num_beam_groups; give both.")
    settings = {"num_beams": defaults.num_beams or 1, "do_sample": defaults.do_sample, **arguments}
    try:
        GenerationConfig(**{name: settings[name] for name in settings.keys() - WORDS}).validate(strict=True)
    except ValueError as error:
        reasons = [line.removeprefix("- ") for line in str(error).splitlines() if line.startswith("- ")]
        raise ValueError(" ".join(reasons) or str(error)) from None
    return dict(arguments)


def generation_settings(generation: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the generation settings that scores depend on, from options or model; `None` if without effect."""
    settings = {**generation, **{name: value for name, value in options.items() if value is not None}}
    beams = settings.get("num_beams") or 1
    penalty = settings.get("length_penalty")
    chosen = {
        "beams": beams,
        "length_penalty": (1.0 if penalty is None else penalty) if beams > 1 else None,
        "max": settings.get("max_new_tokens") or settings.get("max_length") or DEFAULT_CAPTION_LENGTH,
    }
    others = generation_keys() - {"num_beams", "length_penalty", "max_new_tokens", "max_length"}
    return chosen | {name: options[name] for name in sorted(others & options.keys()) if options[name] is not None}


def set_generation_defaults(model: PreTrainedModel, settings: GenerationSettings) -> None:
    """Makes the settings of the evaluation the defaults of `generate()`, also in the saved model."""
    defaults: Any = model.generation_config
    defaults.num_beams = settings.num_beams
    defaults.max_new_tokens = settings.max_new_tokens
    defaults.length_penalty = settings.length_penalty if settings.num_beams > 1 else None
