"""The gradient of a batch, for every objective: complete, in parts, and divided among processes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_ngsan.io.processes import leave_process_group
from hf_ngsan.tasks import load_training_config, train
from tests.guests.tiny import save
from tests.guests.tiny import tiny as tiny_guest
from tests.tasks import tiny, tiny_questions, tiny_retrieval, tiny_translation

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
ONE_STEP = {
    "epochs": 1, "batch_size": 24, "learning_rate": 1e6, "adam_epsilon": 1e6, "schedule": "constant",
    "warmup_epochs": 0, "weight_decay": 0.0, "tracker": None, "num_threads": 1,
}  # fmt: skip
"""Adam's first update is lr * g / (|g| + epsilon); with this epsilon it is proportional to the gradient g."""
ROWS = {"spec": "scenes:size=24,seed=3", "limit": 24, "validation_split": None}


def captioning(folder: Path, stage: str = "xe", training=(), **critical) -> dict:
    model = {**NO_DROPOUT, "geometric_bias": ["query", "key"]}
    sections = tiny.tiny_sections(folder / "run", model, ROWS, {**ONE_STEP, "stage": stage, **dict(training)})
    if stage == "scst":
        sections["model"] = {"init_from": trained_captioner(folder / "start")}
        sections["self_critical"] = {"learning_rate": 1e6, "epochs": 1, "max_new_tokens": 8, **critical}
    return sections


def trained_captioner(folder: Path) -> str:
    return write_and_train(folder, captioning(folder, training={"learning_rate": 0.01, "adam_epsilon": 1e-8}))


def retrieval(folder: Path, **contrastive) -> dict:
    data = {**ROWS, "captions_per_image": 2}
    model = {"dropout": 0.0, "text_config": {**tiny_retrieval.MODEL["text_config"], "dropout": 0.0}}
    return tiny_retrieval.tiny_sections(folder / "run", model, data, ONE_STEP, contrastive=contrastive)


def questions(folder: Path) -> dict:
    spec = tiny_questions.save_questions(folder / "data")
    sections = tiny_questions.tiny_sections(folder / "run", spec, model=NO_DROPOUT)
    sections["training"] |= ONE_STEP
    return sections


def translation(folder: Path) -> dict:
    sections = tiny_translation.tiny_sections(folder)
    sections["training"] |= {**ONE_STEP, "batch_tokens": 4000}
    del sections["training"]["batch_size"]
    return sections


def guest(folder: Path, name: str, **critical) -> dict:
    """A captioner of transformers whose weights are not trained: its gradients are large."""
    model, processor = tiny_guest(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0  # of GIT
    start = save((model, processor), folder / "guest")
    spec = "scenes:size=12,seed=3,images=true,image_size=32"
    data = {**ROWS, "spec": spec, "limit": 12, "captions_per_image": 2, "max_caption_length": 8}
    settings = {**ONE_STEP, "batch_size": 12, "stage": "scst" if critical else "xe", "learning_rate": 1e3}
    return {
        "model": {"init_from": str(start)},
        "data": {key: value for key, value in data.items() if key != "min_word_count"},
        "training": {**settings, "adam_epsilon": 1e3, "output_dir": str(folder / "run")},
        "self_critical": {"learning_rate": 1e3, "epochs": 1, "max_new_tokens": 5, **critical},
    }


def taught(folder: Path) -> dict:
    """A captioner that is also distilled from a trained one with the same words."""
    return captioning(folder, training={"teachers": [trained_captioner(folder / "teacher")]})


OBJECTIVES: dict[str, Callable[[Path], dict]] = {
    "teacher forcing": captioning,
    "weighted captions": lambda folder: captioning(folder, training={"consensus_power": 1.0, "label_smoothing": 0.1}),
    "self-critical": lambda folder: captioning(folder, "scst", samples_per_image=3),
    "self-critical, greedy baseline": lambda folder: captioning(
        folder, "scst", samples_per_image=2, baseline="greedy", bleu_4_weight=0.5, top_p=0.9
    ),
    "hardest negatives": lambda folder: retrieval(folder, loss="hardest", hardest_negatives=2),
    "all negatives": lambda folder: retrieval(folder, loss="all", loss_reduction="sum"),
    "cross-entropy of pairs": lambda folder: retrieval(folder, loss="info_nce", diversity_weight=1.0),
    "BLIP": lambda folder: guest(folder, "blip"),
    "BLIP, self-critical": lambda folder: guest(folder, "blip", samples_per_image=3),
    "GIT": lambda folder: guest(folder, "git"),
    "taught": taught,
    "answers": questions,
    "translation": translation,
}


def write_and_train(folder: Path, sections: dict) -> str:
    sections["training"]["output_dir"] = str(folder / "run")
    (folder / "config.yaml").parent.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(sections))
    train(load_training_config(folder / "config.yaml"))
    return str(folder / "run" / "last")


def gradient(folder: Path, base: Path) -> dict[str, torch.Tensor]:
    before, after = (load_file(item / "last" / "model.safetensors") for item in (base, folder))
    return {name: before[name].double() - value.double() for name, value in after.items()}


class Whole(NamedTuple):
    """The result of an undivided batch; `base` is the folder of a run that learns nothing."""

    config: Path
    base: Path
    gradient: dict[str, torch.Tensor]


def whole_batch(name: str, folder: Path) -> Whole:
    write_and_train(folder, OBJECTIVES[name](folder))
    config, base = folder / "config.yaml", folder / "nothing"
    nothing = [f"training.output_dir={base}", "training.learning_rate=0"]
    nothing += ["self_critical.learning_rate=0"] * ("self-critical" in name)
    train(load_training_config(config, nothing))
    return Whole(config, base, gradient(folder / "run", base))


def check_equal(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    largest = max(float(item.abs().max()) for item in expected.values())
    assert largest > 1e-4
    for name, item in expected.items():
        torch.testing.assert_close(
            actual[name], item, rtol=1e-4, atol=1e-6 * max(1.0, largest), msg=lambda text, name=name: f"{name}: {text}"
        )


OFTEN = ("teacher forcing", "self-critical", "hardest negatives", "answers")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in OBJECTIVES]
)
def test_parts_of_a_batch_have_the_gradient_of_the_whole(name, tmp_path):
    folder = tmp_path / "whole"
    folder.mkdir()
    batch = whole_batch(name, folder)
    parts = [f"training.output_dir={tmp_path / 'parts'}", "training.gradient_accumulation_steps=5"]
    train(load_training_config(batch.config, parts))
    check_equal(gradient(tmp_path / "parts", batch.base), batch.gradient)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    """The complete batches; two processes, started once, have also trained on all of them."""
    place = tmp_path_factory.mktemp("divided")
    wholes = {}
    for number, name in enumerate(OBJECTIVES):
        folder = place / str(number)
        folder.mkdir()
        wholes[name] = whole_batch(name, folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", __name__, *(str(batch.config) for batch in wholes.values())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    return wholes


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_have_the_gradient_of_one(divided, name):
    batch = divided[name]
    check_equal(gradient(batch.config.parent / "two", batch.base), batch.gradient)


def train_on_this_process(configs: list[str]) -> None:
    for config in configs:
        two = [f"training.output_dir={Path(config).parent / 'two'}", "training.gradient_accumulation_steps=2"]
        train(load_training_config(config, two))
    leave_process_group()


if __name__ == "__main__":
    train_on_this_process(sys.argv[1:])
