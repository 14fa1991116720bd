"""New captioners for a training config, or trained ones to fine-tune (`model.init_from`)."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedModel, ProcessorMixin
from transformers.image_utils import SizeDict

from ...data import build_tokenizer
from ...io.messages import one_sentence
from ...loading.models import changed_config, find_model_folder, load_captioner, load_model
from ...loading.provenance import backbone_settings
from ...models.configuration_hub import ConfigurationError
from ...models.configuration_vision import (
    VisionConfig,
    lasting_name,
    make_backbone_config,
)
from ...training.recipe import RecipeError
from ..new_models import (
    check_field_names,
    check_image_size,
    config_class_of,
    config_fields,
    config_to_change,
    new_config,
    new_image_processor,
    new_model,
    new_processor,
    set_feature_size,
    set_generation_defaults,
    trained_guest,
    usable_backbone,
)
from .recipe import CaptioningRecipe

logger = logging.getLogger(__name__)

UNKNOWN_WORD_ID = 3
ONLY_OURS = ("data.image_size", "training.word_dropout", "self_critical.document_frequency")
"""Settings that captioners of transformers do not have."""


def new_captioner(
    recipe: CaptioningRecipe, captions: Iterable[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor that a recipe describes, with the vocabulary of the training captions.

    With `model.init_from` both come from a trained captioner, its vocabulary included, and the other fields of the
    section change its configuration.

    Args:
        recipe: sections `model`, `data` (min_word_count, image_size) and `evaluation` (how it generates by default) are
            used.
        captions: every training caption.
        visual_feature_size: dimension D of the data's features, for a model without a vision encoder.

    Returns:
        The model, on the CPU, and its processor.

    Raises:
        RecipeError: unknown model type or field, a field of the wrong type, features of another dimension, or images of
            a size that the vision encoder cannot take.
    """
    fields = dict(recipe.model)
    guest = trained_guest(recipe, "captioning", ONLY_OURS)
    if guest is not None:
        set_generation_defaults(guest[0], recipe.evaluation)
        return guest
    if "init_from" in fields:
        try:
            model, processor = fine_tuned_captioner(fields, recipe.data.image_size)
        except ConfigurationError as error:
            raise RecipeError(f"section model: {error}") from error
    else:
        kind = config_class_of(fields["model_type"], "captioning")
        tokenizer = with_language_model(fields, kind)
        if tokenizer is None:
            tokenizer = build_tokenizer(captions, min_count=recipe.data.min_word_count)
        set_feature_size(fields, kind, visual_feature_size, recipe.data.spec)
        config = build_config(fields, len(tokenizer))
        config.pad_token_id = tokenizer.pad_token_id
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
        config.decoder_start_token_id = tokenizer.bos_token_id
        model = new_model(config, "AutoModelForImageTextToText")
        processor = new_processor(model, tokenizer, recipe.data.image_size)
    set_generation_defaults(model, recipe.evaluation)
    model.generation_config.suppress_tokens = [UNKNOWN_WORD_ID]
    return model, processor


def with_language_model(fields: dict, kind: Any) -> Any:
    """Returns the tokenizer of the language model that the fields name, which the captioner shares; `None` without one.

    A training run among the fields is replaced by the folder of its best model.
    """
    name = fields.get("pretrained_language_model")
    if not isinstance(name, str):
        if "language_model_config" in config_fields(kind) and fields.get("adaptive_attention", True):
            logger.warning(
                "Warning: the language model of this captioner is not trained, and stays as it is; name a trained one "
                "with model.pretrained_language_model=DIR."
            )
        return None
    _, processor = load_model(name, "language_modeling")
    fields["pretrained_language_model"] = find_model_folder(name)
    return processor.tokenizer


def build_config(fields: Mapping, vocab_size: int) -> Any:
    """Returns the configuration with `model_type` and the fields of a recipe's section `model`.

    Raises:
        RecipeError: unknown model type or field (the closest valid one is named), or a field of the wrong type.
    """
    fields = dict(fields)
    kind = config_class_of(fields.pop("model_type"), "captioning")
    check_field_names(fields, kind)
    return new_config(kind, fields, vocab_size=vocab_size)


def fine_tuned_captioner(fields: dict, image_size: int | None) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads the captioner named by `init_from`, with the other fields changed in its configuration.

    It keeps the weights of its vision encoder and its image processor, but for the size where one is given. With
    another backbone it gets new ones.
    """
    folder, config = config_to_change(fields, "captioning")
    trained = config.vision_config
    is_new = has_another_backbone(fields.get("vision_config"), trained)
    how_trained = {}
    if is_new:
        check_width(folder, config, fields)
    elif fields.get("vision_config") is not None:
        changed = {**trained.to_dict(), **fields["vision_config"], "pretrained": trained.pretrained}
        changed["transformers_version"] = None  # so that unknown keys are errors, as in what a person wrote
        wanted = changed_config(config, {"vision_config": changed}).vision_config
        how_trained = {"frozen": wanted.frozen, "save_frozen_weights": wanted.save_frozen_weights}
        as_saved = {name: getattr(trained, name) for name in how_trained}  # loading needs to know where the weights are
        fields["vision_config"] = {**changed, **as_saved}
    with usable_backbone(changed_config(config, fields).vision_config if is_new else None):
        model, processor = load_captioner(folder, new_vision=is_new, **fields)
    vision: Any = model.base_model.vision
    if how_trained:
        vision.config.update(how_trained)
        vision.requires_grad_(True).train(vision.training)
    if vision is None:
        processor = type(processor)(tokenizer=processor.tokenizer)
    elif is_new or processor.image_processor is None:
        processor = type(processor)(new_image_processor(vision, image_size), processor.tokenizer)
    elif image_size is not None:
        processor.image_processor.size = SizeDict(height=image_size, width=image_size)
    check_image_size(vision, processor.image_processor)
    return model, processor


def has_another_backbone(vision: Mapping | None, trained: VisionConfig | None) -> bool:
    """Returns whether the `vision_config` of a recipe means another backbone than a trained captioner has."""
    if vision is None or trained is None:
        return vision is not None
    source, described = vision.get("pretrained"), vision.get("backbone_config")
    if source is not None and (trained.pretrained is None or lasting_name(source) != lasting_name(trained.pretrained)):
        return True
    if described is None:
        return False
    try:
        own: Any = trained.backbone_config
        meant = make_backbone_config(described, vision.get("out_features"))
        return backbone_settings(meant) != backbone_settings(own)
    except (ValueError, TypeError) as error:
        raise RecipeError(f"model.vision_config: {one_sentence(error)}.") from error


def check_width(folder: str, config: Any, fields: Mapping) -> None:
    """Raises a RecipeError unless a new vision encoder has the feature dimension that a captioner takes."""
    expected = config.visual_feature_size
    found = changed_config(config, {**fields, "visual_feature_size": None}).visual_feature_size
    if found != expected:
        raise RecipeError(
            f"model.vision_config: its feature dimension is {found}, but {folder} takes visual_feature_size="
            f"{expected}; name a backbone of that dimension, or train a captioner without model.init_from."
        )
