import logging

import pytest
import torch
from torch import nn

from hf_ngsan.training import CheckpointError, Checkpoints, TrainingProgress, WeightAverage
from hf_ngsan.training.output_folder import TrainedObjects, read_checkpoint, write_state

DATA = {"number of images": 3}


def trained(seed, width=4):
    """A tiny model after two steps of Adam, its optimizer and its average."""
    torch.manual_seed(seed)
    model = nn.Linear(width, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    average = WeightAverage(model, decay=0.5)
    for step in range(2):
        model(torch.randn(3, width)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update(step + 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=float(2**seed))
    return {"model": model, "optimizer": optimizer, "average": average, "scaler": scaler}


def write(folder, step, objects, keep=2, **progress):
    Checkpoints(folder, keep).save(
        step,
        lambda path: write_state(path, TrainingProgress(step=step, **progress), DATA, TrainedObjects(**objects)),
    )


def state(objects):
    tensors = [*objects["model"].state_dict().values(), *objects["average"].tensors.values()]
    for moments in objects["optimizer"].state_dict()["state"].values():
        tensors += [value for value in moments.values() if isinstance(value, torch.Tensor)]
    return tensors


def test_everything_comes_back_to_the_bit(tmp_path):
    saved, other = trained(seed=0), trained(seed=1)
    progress = {
        "epoch": 2,
        "sums": {"loss": 0.1 + 0.2, "tokens": 7.0},
        "best_score": 1 / 3,
        "history": [{"stage": "training", "epoch": 1, "loss": 2 / 3}],
    }
    write(tmp_path, 8, saved, **progress)
    read = read_checkpoint(Checkpoints(tmp_path).newest_intact(), DATA, TrainedObjects(**other))
    assert read == TrainingProgress(step=8, **progress)
    assert all(torch.equal(a, b) for a, b in zip(state(saved), state(other), strict=True))
    assert other["scaler"].state_dict() == saved["scaler"].state_dict()


def test_rates_are_those_of_the_new_training_config(tmp_path):
    """As on resuming with a lower `learning_rate` and the same `vision_learning_rate`."""
    saved, other = trained(seed=0), trained(seed=1)
    for objects, factor in ((saved, 0.5), (other, 1.0)):
        objects["optimizer"].param_groups[0]["rate_factor"] = factor
    write(tmp_path, 8, saved)
    read_checkpoint(Checkpoints(tmp_path).newest_intact(), DATA, TrainedObjects(**other))
    assert other["optimizer"].param_groups[0]["rate_factor"] == 1.0


def test_the_newest_are_kept_and_those_after_an_intact_one(tmp_path):
    for step in range(1, 6):
        write(tmp_path, step, trained(seed=0), keep=9)
    Checkpoints(tmp_path, keep=2).remove_older(tmp_path / "step-000000004")
    assert [path.name[-1] for path in Checkpoints(tmp_path).all()] == ["3", "4", "5"]
    write(tmp_path, 6, trained(seed=0))
    assert [path.name for path in Checkpoints(tmp_path).all()] == ["step-000000005", "step-000000006"]


def test_a_damaged_checkpoint_is_passed_over_with_one_sentence(tmp_path, caplog):
    assert Checkpoints(tmp_path / "absent").newest_intact() is None
    for step in (1, 2):
        write(tmp_path, step, trained(seed=step))
    weights = tmp_path / "step-000000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (tmp_path / ".incomplete-step-000000003").mkdir()
    with caplog.at_level(logging.WARNING):
        assert Checkpoints(tmp_path).newest_intact() == tmp_path / "step-000000001"
    (message,) = caplog.messages
    assert all(name in message for name in ("step-000000002", "model.safetensors"))
    assert not (tmp_path / ".incomplete-step-000000003").exists()
    (tmp_path / "step-000000001" / "optimizer.pt").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        Checkpoints(tmp_path).newest_intact()


def test_a_checkpoint_of_other_data_or_another_model_is_refused(tmp_path):
    write(tmp_path, 1, trained(seed=0))
    with pytest.raises(CheckpointError, match="number of images"):
        read_checkpoint(tmp_path / "step-000000001", {"number of images": 4}, TrainedObjects(**trained(seed=0)))
    with pytest.raises(CheckpointError, match="step-000000001"):
        read_checkpoint(tmp_path / "step-000000001", DATA, TrainedObjects(**trained(seed=0, width=5)))
