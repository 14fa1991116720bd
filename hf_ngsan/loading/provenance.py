"""Provenance of features: checksums of the backbone's weights and configuration and of the preprocessing.

Features of different backbones cannot be mixed. An extraction records the provenance in the description of the dataset,
and a captioner has it in its configuration.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import BaseImageProcessor, PreTrainedConfig, PreTrainedModel, ProcessorMixin

FIELDS = ("kind", "backbone_type", "checksums")
SETTINGS = {
    "grid": ("grid_size",),
    "frames": ("grid_size",),
    "boxes": ("num_regions", "score_threshold", "with_whole_image", "grid_size"),
    "regions": ("num_regions", "score_threshold", "suppression_threshold", "region_features", "grid_size"),
}
"""Settings other than the backbone that are part of the checksum of the configuration, by kind."""
CHECKSUMS = {"weights": "other weights", "config": "another configuration", "preprocessing": "another preprocessing"}
WITHOUT_EFFECT = {
    *("_name_or_path", "architectures", "auto_map", "custom_pipelines", "dtype", "feature_extractor_type", "frozen"),
    *("image_processor_type", "initializer_range", "pretrained", "processor_class", "requirements"),
    *("save_frozen_weights", "torch_dtype", "transformers_version", "weights_from"),
}
"""Fields of configurations that do not change what a loaded model computes."""


def vision_provenance(model: "PreTrainedModel", image_processor: "BaseImageProcessor") -> dict:
    """Returns the provenance of the features of a [`VisionModel`]; it does not depend on the origin of its files.

    The keys are `kind`, `backbone_type`, `feature_size`, the settings (`None` if the kind does not have them), and
    `checksums` (SHA-256) of the `weights`, the `config` and the `preprocessing`.
    """
    config = model.config
    own_settings = {name: getattr(config, name) for name in SETTINGS[config.kind]}
    backbone = backbone_settings(config.backbone_config)
    if config.kind != "regions":  # the configuration of a former classifier still has its class names
        backbone = {name: value for name, value in backbone.items() if name not in ("id2label", "label2id")}
    return {
        "kind": config.kind,
        "backbone_type": config.backbone_config.model_type,
        "feature_size": config.feature_size,
        **{name: None for settings in SETTINGS.values() for name in settings},
        **own_settings,
        "checksums": {
            "weights": weights_checksum(model),
            "config": settings_checksum({"kind": config.kind, **own_settings, "backbone_config": backbone}),
            "preprocessing": settings_checksum(unusual_settings(image_processor)),
        },
    }


def provenance_difference(recorded: Mapping, current: Mapping) -> str | None:
    """Describes the first difference, such as "another grid_size ([3, 3], not [7, 7])"; None if there is none."""
    for key, words in CHECKSUMS.items():
        if recorded["checksums"][key] != current["checksums"][key]:
            for name in SETTINGS.get(current["kind"], ()) if key == "config" else ():
                if name in recorded and name in current and recorded[name] != current[name]:
                    return f"another {name} ({current[name]}, not {recorded[name]})"
            return words
    return None


def weights_checksum(model: "torch.nn.Module") -> str:
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def model_fingerprint(model: "PreTrainedModel", processor: Any) -> str:
    """Returns a checksum of the weights of a dual encoder and of its preprocessing."""
    image_processor = processor.image_processor
    settings = {} if image_processor is None else unusual_settings(image_processor)
    parts = weights_checksum(model), settings_checksum(settings)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def backbone_settings(config: "PreTrainedConfig") -> dict:
    return {"model_type": config.model_type, **unusual_settings(config)}


def unusual_settings(configured: "PreTrainedConfig | BaseImageProcessor") -> dict:
    """Returns the settings that differ from their defaults; new settings of later versions do not change the result."""
    return with_effect(differing(configured.to_dict(), type(configured)().to_dict()))


def differing(settings: Mapping, defaults: Mapping) -> dict:
    changed = {}
    for key, value in settings.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            value, default = differing(value, default), {}
        if key not in defaults or with_effect(value) != with_effect(default):
            changed[key] = value
    return changed


def settings_checksum(settings: Mapping) -> str:
    return hashlib.sha256(json.dumps(with_effect(settings), sort_keys=True, default=str).encode()).hexdigest()


def with_effect(value: Any) -> Any:
    """Returns settings in a comparable form: without those that have no effect, tuples as lists, 1 as 1.0."""
    if isinstance(value, Mapping):
        return {str(key): with_effect(item) for key, item in value.items() if key not in WITHOUT_EFFECT}
    if isinstance(value, list | tuple):
        return [with_effect(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def stored_provenance(provenance: Mapping) -> dict:
    """Returns the part of a provenance that is stored in models and, as JSON, in the description of datasets."""
    names = (*FIELDS, *SETTINGS.get(provenance["kind"], ()), "dtype")
    return {name: provenance[name] for name in names if name in provenance}


def features_provenance(rows: "Dataset", data: str) -> dict | None:
    """Returns the provenance in the description of a dataset; None if unknown; raises a ValueError for several."""
    provenances: list[dict] = []
    for part in (rows.info.description or "").split("\n\n"):  # `concatenate_datasets` joins them
        with suppress(ValueError, RecursionError):  # plain words, or thousands of brackets
            provenance = json.loads(part)
            checksums = [known["checksums"] for known in provenances]
            if is_provenance(provenance) and provenance["checksums"] not in checksums:
                provenances.append(stored_provenance(provenance))
    if len(provenances) > 1:
        kinds = f"{len(provenances)} backbones or preprocessings"
        raise ValueError(f"{data} has features of {kinds}, which cannot be mixed; extract all with one backbone.")
    return provenances[0] if provenances else None


def is_provenance(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and value.keys() >= set(FIELDS)


def check_provenance(model: "PreTrainedModel", processor: "ProcessorMixin", rows: "Dataset", data: str) -> None:
    """Raises a ValueError if features differ from those that a captioner was trained on or computes."""
    from transformers import PreTrainedModel

    provenance = features_provenance(rows, data)
    origins = {"the training features of the model": model.config.features_provenance}
    vision, image_processor = model.base_model.vision, processor.image_processor
    if provenance is not None and isinstance(vision, PreTrainedModel) and image_processor is not None:
        origins["the vision encoder of the model"] = vision_provenance(vision, image_processor)
    for origin, expected in origins.items():
        if provenance and is_provenance(expected) and (difference := provenance_difference(expected, provenance)):
            raise ValueError(
                f"The features of {data} ({provenance['backbone_type']}) were made with {difference} than {origin} "
                f"({expected['backbone_type']}); features of different backbones cannot be mixed: extract them with "
                "that backbone and preprocessing, or train a model on these features."
            )


def remember_features(model: "PreTrainedModel", rows: "Dataset", data: str) -> None:
    """Writes the provenance of the training features, if known, into the configuration of a captioner."""
    if "visual_features" not in rows.column_names:
        model.config.features_provenance = None
    else:
        model.config.features_provenance = features_provenance(rows, data) or model.config.features_provenance


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of the installed ones among these packages."""
    versions = {}
    for name in names:
        with suppress(PackageNotFoundError):  # such as hf-ngsan in a checkout that is not installed
            versions[name] = version(name)
    return versions
