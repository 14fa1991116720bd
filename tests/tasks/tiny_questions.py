"""Questions about tiny images, and a training config with epochs of a fraction of a second."""

from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict, Features, List, Value

from hf_ngsan.data.contract import lists_of_vectors
from hf_ngsan.tasks import VisualQuestionAnsweringConfig
from hf_ngsan.tasks.question_answering import VisualQuestionAnsweringTask

from .tiny import TRAINING

SIZE = 6
MODEL = {
    **{"model_type": "mcan", "word_embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "intermediate_size": 24, "reduction_hidden_size": 8, "pooled_size": 16},
    "geometry_hidden_size": 4,
}
COLUMNS = Features(
    {
        **{name: Value("int64") for name in ("question_id", "image_id")},
        "question": Value("string"),
        "answers": List(Value("string")),
        "answer_type": Value("string"),
        "visual_features": lists_of_vectors(SIZE, "float32"),
        "visual_boxes": lists_of_vectors(4, "float32"),
    }
)


def row(number: int) -> dict:
    """A question about the number of regions, or about the kind of the first region."""
    generator = np.random.default_rng(number)
    regions = 1 + number % 3
    kinds = generator.integers(0, 2, regions)
    low = generator.uniform(0, 0.4, (regions, 2))
    counts = number % 2 == 0
    right = str(regions) if counts else ("red", "blue")[kinds[0]]
    return {
        "question_id": 10 * number,
        "image_id": number,
        "question": "How many things are there?" if counts else "What color is the thing?",
        "answers": [right] * 8 + ["Seven", "a red-thing"],
        "answer_type": "number" if counts else "other",
        "visual_features": np.concatenate([np.eye(2)[kinds], generator.normal(size=(regions, SIZE - 2))], 1),
        "visual_boxes": np.concatenate([low, low + 0.5], 1),
    }


def save_questions(folder: Path) -> str:
    """Writes 24 training, 6 validation and 6 test questions; returns their dataset string."""
    numbers = {"train": range(24), "validation": range(24, 30), "test": range(30, 36)}
    parts = {name: Dataset.from_list([row(item) for item in of], features=COLUMNS) for name, of in numbers.items()}
    DatasetDict(parts).save_to_disk(str(folder))
    return f"features:{folder}"


def tiny_sections(output_dir: Path, spec: str, model=(), data=(), training=(), **sections) -> dict:
    return {
        "model": {**MODEL, **dict(model)},
        "data": {"spec": spec, "min_answer_count": 1, **dict(data)},
        "training": {**TRAINING, "output_dir": str(output_dir), **dict(training)},
        **sections,
    }


def tiny_training_config(output_dir: Path, spec: str, **sections) -> VisualQuestionAnsweringConfig:
    return VisualQuestionAnsweringConfig.from_dict(tiny_sections(output_dir, spec, **sections))


def tiny_task(output_dir: Path, spec: str, **sections) -> VisualQuestionAnsweringTask:
    return VisualQuestionAnsweringTask(tiny_training_config(output_dir, spec, **sections))
