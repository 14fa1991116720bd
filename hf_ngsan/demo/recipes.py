"""The training configs of the demo: captioners of synthetic scenes, from regions and from pixels, and search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tasks import CaptioningRecipe, RetrievalRecipe

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

SEARCH = "MHSAN"

SEARCHED: Sections = {
    "model": {
        "model_type": "mhsan",
        "vision_config": None,
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
        "num_image_heads": 5,
        "num_text_heads": 5,
        "dropout": 0.0,
    },
    "data": {
        "spec": "scenes:size=3000,validation=200,test=200,descriptions=true",
        "min_word_count": 1,
        "captions_per_image": 1,
        "max_caption_length": 64,
    },
    "contrastive": {"loss": "info_nce", "temperature": 0.05, "diversity_weight": 0.01},
    "training": {
        "epochs": 8,
        "batch_size": 50,
        "learning_rate": 4e-3,
        "schedule": "cosine",
        "warmup_epochs": 1,
        "max_grad_norm": 1.0,
        "num_threads": 1,
    },
    "evaluation": {"every_epochs": 8, "batch_size": 200},
}
"""A small MHSAN on the regions of synthetic scenes: what differs from the defaults of `RetrievalRecipe`."""


def search_recipe(output_dir: Path, seed: int = 0, changes: Sections | None = None) -> RetrievalRecipe:
    """Returns the training config of a dual encoder of synthetic scenes; see [`scenes_recipe`]."""
    return RetrievalRecipe.from_dict(changed(SEARCHED, output_dir, seed, changes))


def scenes_recipe(variant: str, output_dir: Path, seed: int = 0, changes: Sections | None = None) -> CaptioningRecipe:
    """Returns the training config of a captioner of synthetic scenes; `seed` is that of the scenes and of the weights.

    Args:
        variant: one of `VARIANTS`, or `FROM_PIXELS`.
        output_dir: folder of the run.
        seed: not negative.
        changes: sections with keys to change.
    """
    sections = changed(PIXELS if variant == FROM_PIXELS else SCENES, output_dir, seed, changes)
    sections["model"] |= VARIANTS.get(variant, {})
    return CaptioningRecipe.from_dict(sections)


def changed(base: Sections, output_dir: Path, seed: int, changes: Sections | None) -> dict[str, dict[str, Any]]:
    """Returns sections with some keys changed, and with a seed and a folder."""
    sections = {name: {**values, **(changes or {}).get(name, {})} for name, values in base.items()}
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return sections


def folder_name(variant: str) -> str:
    return variant.lower().replace(" ", "-")
