"""The training configs of the demo: the packaged ones of synthetic scenes, with the changes of each variant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tasks import load_training_config
from ..training import TrainingConfig

Sections = Mapping[str, Mapping[str, Any]]

VARIANTS: Sections = {
    "SAN": {"query_norm": None, "geometric_bias": []},
    "N-SAN": {"geometric_bias": []},
    "G-SAN": {"query_norm": None},
    "NG-SAN": {},
    "NG-SAN signed": {"geometry_features": "signed"},
}
"""Fields of the configuration that make a variant of NG-SAN."""

LEFT_OUT = {"ngsan/scenes": ("query_norm", "geometry_features")}
"""Fields that a packaged config spells out for its readers. The demo leaves them to the defaults, as earlier versions
did: with other fields their runs could not be resumed."""

FROM_PIXELS = "from pixels"

IN_BRIEF: Sections = {
    "data": {"spec": "scenes:size=8000,validation=200,test=500,images=true,image_size=64"},
    "training": {"epochs": 6, "num_threads": 1},
    "evaluation": {"every_epochs": 6},
}
"""Changes to the packaged config of pixels that limit training to minutes; relations are then learnt less well."""

SEARCH = "MHSAN"
SMALL_SEARCH: Sections = {
    "model": {
        "text_config": {
            "word_embedding_size": 32,
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "dropout": 0.0,
            "input_dropout": 0.0,
        },
        "hidden_size": 64,
        "projection_dim": 64,
        "attention_hidden_size": 32,
    },
    "data": {"spec": "scenes:size=3000,validation=200,test=200,descriptions=true"},
    "training": {"epochs": 8, "batch_size": 50, "learning_rate": 4e-3, "drop_last": False, "num_threads": 1},
    "evaluation": {"every_epochs": 8},
}
"""Changes to the packaged config of search, for a smaller MHSAN."""


def scenes_config(variant: str, output_dir: Path, seed: int = 0, changes: Sections | None = None) -> TrainingConfig:
    """Returns the training config of a captioner of synthetic scenes.

    Args:
        variant: one of `VARIANTS`, or `FROM_PIXELS`.
        output_dir: folder of the run.
        seed: seed of the scenes and of the weights; not negative.
        changes: sections with keys to change.
    """
    if variant == FROM_PIXELS:
        return changed("spatial_captioner/scenes", output_dir, seed, changes or {})
    return changed("ngsan/scenes", output_dir, seed, changes or {}, {"model": VARIANTS[variant]})


def search_config(output_dir: Path, seed: int = 0, changes: Sections | None = None) -> TrainingConfig:
    """Returns the training config of a dual encoder of synthetic scenes; see [`scenes_config`]."""
    return changed("mhsan/scenes", output_dir, seed, SMALL_SEARCH, changes or {})


def changed(config: str, output_dir: Path, seed: int, *changes: Sections) -> TrainingConfig:
    """Returns a packaged training config with changes, a seed and a folder."""
    packaged = load_training_config(config)
    sections = packaged.to_dict()
    sections["data"]["spec"] = packaged.data.spec.rpartition(",seed=")[0]
    for key in LEFT_OUT.get(config, ()):
        del sections["model"][key]
    for change in changes:
        sections = {name: {**values, **change.get(name, {})} for name, values in sections.items()}
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return packaged.from_dict(sections)


def folder_name(variant: str) -> str:
    return variant.lower().replace(" ", "-")
