"""Features of different backbones do not mix: what those of a data set were made with, and what a captioner takes."""

import json
from collections.abc import Mapping

from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from .recipe import RecipeError
from .vision_identity import CHECKSUMS, vision_difference, vision_identity

FIELDS = ("kind", "backbone_type", "checksums")


def description_of(identity: Mapping) -> str:
    """What the description of a data set says of its features, see [`vision_identity`]; [`features_identity`] reads it.

    It goes where the rows go: through `select`, `map`, `save_to_disk` and into a `DatasetDict`.
    """
    return json.dumps({name: identity[name] for name in FIELDS})


def features_identity(rows: Dataset, data: str) -> dict | None:
    """What the features of a data set were made with.

    Args:
        rows: any rows, with or without such a description.
        data: what messages call them.

    Returns:
        `kind`, `backbone_type` and `checksums` of a [`vision_identity`]; None where it is not known.

    Raises:
        RecipeError: features of several backbones were put together.
    """
    found = []
    for part in (rows.info.description or "").split("\n\n"):  # as `concatenate_datasets` joins them
        identity = parse(part)
        if identity is not None and identity not in found:
            found.append(identity)
    if len(found) > 1:
        raise RecipeError(
            f"{data} holds features of {len(found)} backbones or preprocessings, which do not mix; extract all of them "
            "with one."
        )
    return found[0] if found else None


def parse(description: str) -> dict | None:
    try:
        identity = json.loads(description)
    except ValueError:
        return None
    return {name: identity[name] for name in FIELDS} if is_identity(identity) else None


def is_identity(value) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() >= set(FIELDS)
        and isinstance(value["checksums"], Mapping)
        and value["checksums"].keys() >= set(CHECKSUMS)
    )


def check_features(model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str):
    """Refuse features that another backbone or preprocessing made than those that a captioner knows.

    These are the ones that it was trained on and, where it has a vision part, what that makes of its image processor's
    pixels. Where one of the two is not known, it is not compared.

    Raises:
        RecipeError: see above; the message says what differs.
    """
    identity = features_identity(rows, data)
    if identity is None:
        return
    refuse_to_mix(model.config.features_identity, identity, data, "those the model was trained on have")
    vision, image_processor = model.base_model.vision, processor.image_processor
    if vision is not None and image_processor is not None:
        refuse_to_mix(vision_identity(vision, image_processor), identity, data, "the model's vision part has")


def refuse_to_mix(own: Mapping | None, identity: Mapping, data: str, whose: str):
    difference = vision_difference(own, identity) if is_identity(own) else None
    if difference:
        raise RecipeError(
            f"The features of {data} ({identity['backbone_type']}) were made with {difference} than {whose} "
            f"({own['backbone_type']}); features of different backbones do not mix: extract them with that backbone "
            "and its preprocessing, or train a model on these."
        )


def remember_features(model: PreTrainedModel, rows: Dataset, data: str):
    """Let the configuration of a captioner that is to be trained say what its features are made with.

    Trained on images, it knows no features but those of its own vision part.
    """
    if "visual_features" not in rows.column_names:
        model.config.features_identity = None
    else:
        model.config.features_identity = features_identity(rows, data) or model.config.features_identity
