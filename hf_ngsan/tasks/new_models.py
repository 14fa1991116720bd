"""What making new models of several tasks needs: checked fields, a usable backbone, a vocabulary that fits."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from transformers import BaseImageProcessor, PreTrainedTokenizerBase

from ..ground.messages import one_sentence
from ..loading.limits import UnusableModelError
from ..loading.models import ModelFolderError, quiet_loading
from ..loading.preprocessing import load_image_processor
from ..models.configuration_hub import HubConfig
from ..models.configuration_vision import VisionConfig
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.modeling_vision import VisionModel
from ..training.recipe import RecipeError, suggestion

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


FOLLOWS_FROM_DATA = {
    **dict.fromkeys(("vocab_size", *SPECIAL_TOKENS), "the vocabulary of the training captions"),
    "features_provenance": "the features that are trained on",
}


def check_field_names(fields: Mapping, kind: type) -> None:
    """Raises a RecipeError for a key of section `model` that is no field of its configuration."""
    for name in fields:
        if name in FOLLOWS_FROM_DATA:
            raise RecipeError(f"model.{name} follows from {FOLLOWS_FROM_DATA[name]}; leave it out.")
    valid = config_fields(kind)
    for name in fields:
        if name not in valid:
            raise RecipeError(f"unknown key model.{name}{suggestion(name, sorted(valid), 'model')}")
    vision = fields.get("vision_config")
    if not (vision is None or isinstance(vision, Mapping)):
        raise RecipeError(f"model.vision_config must be a mapping of keys to values or null, not {vision!r}.")


def config_fields(kind: type) -> set[str]:
    """Returns the fields that a configuration class itself declares, those of transformers' base class left out."""
    own = [parent for parent in kind.__mro__ if issubclass(parent, HubConfig)]
    names = {name for parent in own for name in parent.__annotations__}
    return names & {field.name for field in dataclasses.fields(kind)}


def check_configured_feature_size(asked_for: int | None, found: int, data: str) -> None:
    """Raises a RecipeError if a training config asks for features of another dimension than its data has."""
    if asked_for not in (None, found):
        raise RecipeError(
            f"model.visual_feature_size is {asked_for}, but the features of {data} have dimension {found}; set "
            f"model.visual_feature_size={found}, or leave it out."
        )


@contextmanager
def usable_backbone(vision: VisionConfig | None) -> Iterator[None]:
    """Inside the `with` block, weights of a backbone that cannot be loaded where a configuration says are an error.

    Raises:
        RecipeError: there are no such weights.
    """
    try:
        with quiet_loading():
            yield
    except ModelFolderError:  # of the captioner around the backbone
        raise
    except UnusableModelError as error:
        raise RecipeError(f"section model: {error}; choose smaller numbers.") from None
    except Exception as error:  # transformers says in many ways that a file is not what it should be
        if vision is None or not vision.pretrained:
            raise
        raise unusable_backbone(vision.pretrained, error) from error


def unusable_backbone(name: str, error: Exception) -> RecipeError:
    return RecipeError(
        f"model.vision_config: the backbone {name} cannot be used ({one_sentence(error)}); pretrained must be the "
        "folder of a backbone or detection model itself, not of a captioner around it, or its name on the Hub."
    )


def new_image_processor(vision: VisionModel, image_size: int | None) -> CaptioningImageProcessor:
    """Images are prepared as the source of a backbone's weights says, else as ImageNet's.

    Args:
        vision: the vision encoder around the backbone.
        image_size: height and width in pixels anyway, if not `None`.

    Raises:
        RecipeError: the preprocessing is not known, or does not suit boxes.
    """
    source = vision.config.pretrained
    if source is None:
        if image_size is None:
            return CaptioningImageProcessor()
        return CaptioningImageProcessor(size={"height": image_size, "width": image_size})
    try:
        return load_image_processor(source, vision.config.kind, image_size=image_size)
    except (ValueError, OSError) as error:
        raise unusable_backbone(source, error) from error


def check_image_size(vision: VisionModel | None, image_processor: BaseImageProcessor | None) -> None:
    """Raises a RecipeError if all images become of one size, which the vision encoder cannot take."""
    size = getattr(image_processor, "size", None) or {}
    if vision is not None and size.get("height") and size.get("width"):
        try:
            vision.check_size(size["height"], size["width"])
        except ValueError as error:
            raise RecipeError(str(error)) from error


MOST_UNKNOWN_WORDS = 0.05
"""Share of unknown words above which training warns."""


def report_vocabulary(tokenizer: PreTrainedTokenizerBase, captions: list[str], is_new: bool = True) -> None:
    """Logs the size of the vocabulary and the share of words that it lacks, as a warning if that is large.

    Args:
        tokenizer: of the captioner.
        captions: for training.
        is_new: whether the vocabulary was made of them; otherwise it is that of a trained captioner, which is kept.
    """
    ids = tokenizer(captions, add_special_tokens=False)["input_ids"]
    number = sum(map(len, ids))
    unknown = sum(words.count(tokenizer.unk_token_id) for words in ids) / max(number, 1)
    known = len(tokenizer) - len(set(tokenizer.all_special_ids))
    message = "The vocabulary has %d words; %.1f%% of the words of the training captions are unknown to it%s."
    if unknown > MOST_UNKNOWN_WORDS:
        remedy = "lower data.min_word_count" if is_new else "a captioner without model.init_from would learn them"
        logger.warning("Warning: " + message, known, 100 * unknown, f": {remedy}")
    else:
        logger.info(message, known, 100 * unknown, "")
