"""The scripts as a user runs them, also on files that are not checkpoints: no code runs, no partial output remains."""

import os
import pickle

import convert_grid_feats_backbone
import convert_torchvision_backbone
import numpy as np
import pytest
import torch
from state_dicts import ConversionError, load_state_dict

from tests.conversion.layouts import DEPTHS, detectron2_state_dict
from tests.tables import each_row


def call(script, *options) -> int:
    return script.main(script.__doc__, list(script.CONFIGURATIONS), script.convert_checkpoint, list(options))


def test_a_detector_saved_by_its_training_is_read(tmp_path, monkeypatch, capsys):
    """Weights as numpy arrays, together with the state of the optimizer."""
    monkeypatch.chdir(tmp_path)
    weights = {name: tensor.numpy() for name, tensor in detectron2_state_dict(DEPTHS[50]).items()}
    training = {"optimizer": {"state": {0: {"momentum_buffer": torch.zeros(2)}}}, "iteration": np.float64(3)}
    torch.save({"model": weights, **training}, "R-50.pth")
    options = ["--architecture", "R-50", "--checkpoint", "R-50.pth", "--output", "some/R-50"]
    assert call(convert_grid_feats_backbone, *options) == 0
    assert "left out: roi_heads.box_head.fc1.weight" in capsys.readouterr().out
    assert (tmp_path / "some" / "R-50" / "preprocessor_config.json").is_file()


class Trap:
    def __reduce__(self):
        return os.system, ("touch sprung",)


@each_row(
    "write",
    [
        lambda path: path.write_text("no weights"),
        lambda path: torch.save({"state_dict": {}, "optimizer": Trap()}, path),
        lambda path: path.write_bytes(pickle.dumps(Trap(), protocol=2)),
        lambda path: torch.save([torch.zeros(1)], path),
    ],
)
def test_what_is_no_checkpoint_is_refused_and_not_run(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "weights.pth")
    with pytest.raises(ConversionError, match=r"weights\.pth"):
        load_state_dict(tmp_path / "weights.pth")
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pth"]


WEIGHTS = {"features.0.weight": torch.rand(2, 3), "model": torch.arange(6).reshape(2, 3)}
PARALLEL = {f"module.{name}": weight for name, weight in WEIGHTS.items()}


@each_row(
    ("saved", "expected"),
    [
        ({"state_dict": WEIGHTS, "epoch": 3}, WEIGHTS),
        ({"model": {name: weight.numpy() for name, weight in WEIGHTS.items()}, "epoch": 3}, WEIGHTS),
        ({"state_dict": PARALLEL}, WEIGHTS),
        (PARALLEL | {"bias": torch.zeros(1)}, PARALLEL | {"bias": torch.zeros(1)}),
    ],
)
def test_a_state_dict_is_found_where_training_scripts_put_it(saved, expected, tmp_path):
    torch.save(saved, tmp_path / "checkpoint.pth")
    actual = load_state_dict(tmp_path / "checkpoint.pth")
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], weight) for name, weight in expected.items())


@each_row(
    ("checkpoint", "output", "named"),
    [
        ("absent.pth", "out", "absent.pth"),
        ("other.pth", "out", "features.0.bias"),
        ("other.pth", "other.pth", "other.pth"),
    ],
)
def test_errors_are_one_sentence(checkpoint, output, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(1)}, "other.pth")
    options = ["--architecture", "vgg11", "--checkpoint", checkpoint, "--output", output]
    assert call(convert_torchvision_backbone, *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert named in line
    assert [path.name for path in tmp_path.iterdir()] == ["other.pth"]
