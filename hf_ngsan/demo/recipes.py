"""The training configs of the demo: captioners of synthetic scenes, from regions and from pixels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tasks import CaptioningRecipe

Sections = Mapping[str, Mapping[str, Any]]

SCENES: Sections = {
    "model": {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 16,
        "intermediate_size": 256,
        "geometric_bias": ["query", "key"],
        "geometry_hidden_size": 32,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.125,
    },
    "data": {"spec": "scenes:size=8000,validation=200,test=500", "min_word_count": 1},
    "training": {
        "epochs": 8,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup_epochs": 1,
        "max_grad_norm": 1.0,
        "num_threads": 1,
    },
    "evaluation": {"every_epochs": 8, "num_beams": 3, "max_new_tokens": 12, "batch_size": 250},
}
"""NG-SAN on the regions of synthetic scenes: what differs from the defaults of `CaptioningRecipe`."""

VARIANTS: Sections = {
    "SAN": {"query_norm": None, "geometric_bias": []},
    "N-SAN": {"geometric_bias": []},
    "G-SAN": {"query_norm": None},
    "NG-SAN": {},
    "NG-SAN signed": {"geometry_features": "signed"},
}
"""Fields of the configuration that make a variant of NG-SAN."""

FROM_PIXELS = "from pixels"

PIXELS: Sections = {
    "model": {
        "model_type": "spatial_captioner",
        "hidden_size": 64,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "attention_temperature": "head_dim",
        "attention_bias": True,
        "position_embedding": "boxes",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.125,
        "vision_config": {
            "backbone_config": {
                "model_type": "ngsan_vgg",
                "depths": [1, 1, 1, 1],
                "hidden_sizes": [16, 32, 64, 64],
                "use_batch_norm": True,
            },
            "frozen": False,
        },
    },
    "data": {
        "spec": "scenes:size=16000,validation=200,test=500,images=true,image_size=64",
        "min_word_count": 1,
        "image_size": 64,
    },
    "training": {
        "epochs": 10,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup_epochs": 1,
        "max_grad_norm": 1.0,
    },
    "evaluation": {"every_epochs": 10, "num_beams": 3, "max_new_tokens": 12, "batch_size": 250},
}
"""The spatial captioner on the pixels of synthetic scenes: what differs from the defaults of `CaptioningRecipe`."""

IN_BRIEF: Sections = {
    "data": {"spec": "scenes:size=8000,validation=200,test=500,images=true,image_size=64"},
    "training": {"epochs": 6, "num_threads": 1},
    "evaluation": {"every_epochs": 6},
}
"""What the demo changes in it, to be done in time; relations are then learnt less well."""


def scenes_recipe(variant: str, output_dir: Path, seed: int = 0, changes: Sections | None = None) -> CaptioningRecipe:
    """Returns the training config of a captioner of synthetic scenes; `seed` is that of the scenes and of the weights.

    Args:
        variant: one of `VARIANTS`, or `FROM_PIXELS`.
        output_dir: folder of the run.
        seed: not negative.
        changes: sections with keys to change.
    """
    changes, base = changes or {}, PIXELS if variant == FROM_PIXELS else SCENES
    sections = {name: {**values, **changes.get(name, {})} for name, values in base.items()}
    sections["model"] |= VARIANTS.get(variant, {})
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return CaptioningRecipe.from_dict(sections)


def folder_name(variant: str) -> str:
    return variant.lower().replace(" ", "-")
