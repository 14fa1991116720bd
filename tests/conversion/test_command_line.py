"""The scripts as a user runs them; files that are no checkpoints; nothing is executed, nothing half written."""

import os
import pickle
import subprocess
import sys
from collections import OrderedDict

import convert_grid_feats_backbone
import convert_torchvision_backbone
import numpy as np
import pytest
import torch
from state_dicts import Conversion, ConversionError, load_state_dict, save

from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone
from tests.conversion.layouts import DEPTHS, detectron2_state_dict, vgg_map, vgg_state_dict
from tests.tables import each_row


@pytest.mark.slow
def test_a_torchvision_file_becomes_a_folder(scripts, tmp_path):
    weights = vgg_state_dict()
    torch.save(OrderedDict(weights), tmp_path / "vgg11.pth")
    options = ["--architecture", "vgg11", "--checkpoint", "vgg11.pth", "--output", "vgg11"]
    result = subprocess.run(
        [sys.executable, scripts / "convert_torchvision_backbone.py", *options],
        env={**os.environ, "PYTHONPATH": str(scripts.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "left out: classifier.0.bias" in result.stdout
    assert "The backbone of vgg11, 16 weights, is in vgg11. 6 weights of heads were left out." in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vgg11", "vgg11.pth"]
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        found = NGSANVGGBackbone.from_pretrained(tmp_path / "vgg11").eval()(images).feature_maps[0]
    torch.testing.assert_close(found, vgg_map(weights, images), atol=1e-5, rtol=1e-5)


def call(script, *options) -> int:
    return script.main(script.__doc__, list(script.CONFIGURATIONS), script.convert_checkpoint, list(options))


def test_a_detector_saved_by_its_training_is_read(tmp_path, monkeypatch, capsys):
    """Weights as numpy arrays, next to the state of the optimizer."""
    monkeypatch.chdir(tmp_path)
    weights = {name: tensor.numpy() for name, tensor in detectron2_state_dict(DEPTHS[50]).items()}
    training = {"optimizer": {"state": {0: {"momentum_buffer": torch.zeros(2)}}}, "iteration": np.float64(3)}
    torch.save({"model": weights, **training}, "R-50.pth")
    options = ["--architecture", "R-50", "--checkpoint", "R-50.pth", "--output", "some/R-50"]
    assert call(convert_grid_feats_backbone, *options) == 0
    assert "left out: roi_heads.box_head.fc1.weight" in capsys.readouterr().out
    assert (tmp_path / "some" / "R-50" / "preprocessor_config.json").is_file()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    class FullDisk:
        def save_pretrained(self, folder):
            (folder / "model.safetensors").touch()
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        save(Conversion(FullDisk(), [], {}), tmp_path / "backbone")
    assert not list(tmp_path.iterdir())


class Trap:
    def __reduce__(self):
        return os.system, ("touch sprung",)


BAD_FILES = {
    "text.pth": (lambda path: path.write_text("no weights"), "text.pth is damaged, or no file of weights"),
    "trap.pth": (lambda path: torch.save({"weight": Trap()}, path), "trap.pth is damaged, or no file of weights that"),
    "pickle.pth": (
        lambda path: path.write_bytes(pickle.dumps(Trap(), protocol=2)),
        "pickle.pth is damaged, or no file of weights",
    ),
    "list.pth": (lambda path: torch.save([torch.zeros(1)], path), "list.pth holds no state dict"),
}


@each_row("name", BAD_FILES)
def test_no_checkpoint(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, message = BAD_FILES[name]
    write(tmp_path / name)
    with pytest.raises(ConversionError, match=message):
        load_state_dict(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@each_row(
    "wrap",
    [
        lambda weights: {"state_dict": weights, "epoch": 3},
        lambda weights: {"model": weights, "epoch": 3},
        lambda weights: {f"module.{name}": weight for name, weight in weights.items()},
        lambda weights: {"state_dict": {f"module.{name}": weight for name, weight in weights.items()}},
    ],
)
def test_a_state_dict_is_found_where_training_scripts_put_it(wrap, tmp_path):
    weights = {"features.0.weight": torch.rand(2, 3), "model": torch.rand(1)}
    torch.save(wrap(weights), tmp_path / "checkpoint.pth")
    found = load_state_dict(tmp_path / "checkpoint.pth")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())


def test_a_prefix_of_some_names_only_stays(tmp_path):
    torch.save({"module.weight": torch.zeros(1), "bias": torch.zeros(1)}, tmp_path / "checkpoint.pth")
    assert load_state_dict(tmp_path / "checkpoint.pth").keys() == {"module.weight", "bias"}


@each_row("dtype", ["float16", "float32", "float64", "int64"])
def test_arrays_are_read(dtype, tmp_path):
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    torch.save({"model": {"weight": array}}, tmp_path / "arrays.pth")
    found = load_state_dict(tmp_path / "arrays.pth")
    assert torch.equal(found["weight"], torch.from_numpy(array))


def test_arrays_of_numpy_1_are_read(tmp_path):
    """Its functions were elsewhere."""
    pickled = pickle.dumps({"weight": np.arange(3, dtype="float32")}, protocol=2)
    pickled = pickled.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    torch.save({}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    magic = (tmp_path / "old.pth").read_bytes()
    # A file of the old format: magic number, version, machine, object, keys of storages.
    head, tail = magic.split(pickle.dumps({}, protocol=2), 1)
    (tmp_path / "old.pth").write_bytes(head + pickled + tail)
    assert load_state_dict(tmp_path / "old.pth")["weight"].tolist() == [0, 1, 2]


@each_row(
    ("checkpoint", "output", "message"),
    [
        ("absent.pth", "out", "absent.pth: No such file or directory."),
        (".", "out", ".: Is a directory."),
        (
            "other.pth",
            "out",
            "The checkpoint lacks weights of the architecture (16 of 16, features.0.bias among them).",
        ),
        ("other.pth", "other.pth", "other.pth exists already; name a new folder."),
    ],
)
def test_errors_are_one_sentence(checkpoint, output, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(1)}, "other.pth")
    options = ["--architecture", "vgg11", "--checkpoint", checkpoint, "--output", output]
    assert call(convert_torchvision_backbone, *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["other.pth"]


@each_row("script", [convert_torchvision_backbone, convert_grid_feats_backbone])
def test_an_unknown_architecture_is_refused(script, capsys):
    with pytest.raises(SystemExit) as stopped:
        call(script, "--architecture", "vgg12", "--checkpoint", "x", "--output", "y")
    assert stopped.value.code == 2
    assert "invalid choice: 'vgg12'" in capsys.readouterr().err
