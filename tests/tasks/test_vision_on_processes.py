"""Vision parts of transformers, some of whose weights no loss depends on, trained on two processes as on one."""

import os
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_ngsan.tasks import load_training_config, train
from tests.extraction.test_vision import DETECTOR

from .tiny import tiny_sections

DINOV2 = {"model_type": "dinov2", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 56}
VISIONS = {
    "DINOv2": {"backbone_config": DINOV2, "grid_size": [2, 2]},
    "RT-DETR": {"kind": "regions", "backbone_config": {"model_type": "rt_detr", **DETECTOR}, "num_regions": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VISIONS))
def test_two_processes_train_a_vision_part_as_one_does(name, tmp_path):
    sections = tiny_sections(
        tmp_path / "one",
        {"vision_config": {**VISIONS[name], "frozen": False}, "dropout": 0.0, "attention_dropout": 0.0},
        {"spec": "scenes:size=30,seed=3,images=true,image_size=64", "image_size": 64},
        {"epochs": 1, "max_grad_norm": 1.0, "learning_rate": 0.001},
    )
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(sections))
    train(load_training_config(config))
    train(load_training_config(config, ["training.learning_rate=0", f"output_dir={tmp_path / 'none'}"]))
    command = [sys.executable, "-m", "hf_ngsan.cli", "train", "--config", config, f"output_dir={tmp_path / 'two'}"]
    command += ["--num-processes", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(map(str, command), env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    one, two, start = (trained_weights(tmp_path / run / "last/model.safetensors") for run in ("one", "two", "none"))
    # RT-DETR normalizes by the batch, of which each process has half
    assert (two - one).norm() < (1e-3 if name == "DINOv2" else 0.5) * (one - start).norm()


def trained_weights(file) -> torch.Tensor:
    weights = {name: value for name, value in load_file(file).items() if "running_" not in name}
    return torch.cat([weights[name].double().flatten() for name in sorted(weights)])
