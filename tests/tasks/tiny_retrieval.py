"""A training config of a dual encoder with epochs of a fraction of a second."""

from pathlib import Path

from hf_ngsan.tasks import RetrievalConfig

from .tiny import TRAINING

MODEL = {
    **{"model_type": "mhsan", "vision_config": None},
    "text_config": {"word_embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2},
    **{"hidden_size": 12, "projection_dim": 10, "attention_hidden_size": 6, "num_image_heads": 2, "num_text_heads": 3},
}
DATA = {"spec": "scenes:size=24,validation=6,test=6,seed=3", "min_word_count": 1, "captions_per_image": 2}
STAGES = {f"{name}_stage": {"epochs": 1, "learning_rate": 0.01} for name in ("projection", "text", "image")}


def tiny_sections(output_dir: Path, model=(), data=(), training=(), **sections) -> dict:
    return {
        "model": {**MODEL, **dict(model)},
        "data": {**DATA, **dict(data)},
        "training": {**TRAINING, "output_dir": str(output_dir), **dict(training)},
        **STAGES,
        **sections,
    }


def tiny_training_config(output_dir: Path, **sections) -> RetrievalConfig:
    return RetrievalConfig.from_dict(tiny_sections(output_dir, **sections))
