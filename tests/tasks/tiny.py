"""A config of a captioner that is small enough for an epoch in a fraction of a second."""

from pathlib import Path

from hf_ngsan.tasks import CaptioningConfig

MODEL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "geometry_hidden_size": 4,
}
DATA = {"spec": "scenes:size=30,seed=3", "min_word_count": 1, "max_caption_length": 18}
TRAINING = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "warmup_epochs": 0, "tracker": None, "num_threads": 1}
EVALUATION = {"num_beams": 2, "batch_size": 32, "max_new_tokens": 14}


def tiny_training_config(
    output_dir: Path, model=(), data=(), training=(), evaluation=(), self_critical=()
) -> CaptioningConfig:
    return CaptioningConfig.from_dict(tiny_sections(output_dir, model, data, training, evaluation, self_critical))


def tiny_sections(output_dir: Path, model=(), data=(), training=(), evaluation=(), self_critical=()) -> dict:
    return {
        "model": {**MODEL, **dict(model)},
        "data": {**DATA, **dict(data)},
        "training": {**TRAINING, "output_dir": str(output_dir), **dict(training)},
        "self_critical": dict(self_critical),
        "evaluation": {**EVALUATION, **dict(evaluation)},
    }
