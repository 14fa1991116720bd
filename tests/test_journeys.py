"""Whole journeys in real processes: kill -9 and resume, several processes, real data."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tests.extraction.tiny import write_coco_file, write_photos
from tests.tasks.tiny import DATA, tiny_sections
from tests.training.test_loop import same_weights, scores

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "train_captioning.py"
COCO_LAYOUT = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent")) / "data" / "coco_val2017"
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}

pytestmark = pytest.mark.slow


def write_config(folder, **sections):
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", **sections)))
    return file


def start(*arguments, **options):
    """A Python process in a session of its own, so that it can be ended with all that it started."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], env=environment, text=True, start_new_session=True, **options
    )


def succeed(*arguments, **options) -> tuple[str, str]:
    """Run a Python process, which must not fail; returns what it wrote to stdout and stderr."""
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        output, errors = process.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, errors
    return output, errors


def history_of(run):
    return scores([json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()])


def numbers_of(entry):
    return {name: value for name, value in entry.items() if name != "stage"}


def test_a_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path):
    training = {"epochs": 6, "batch_size": 2, "save_every_steps": 1, "ema_decay": 0.9}
    kill_and_compare(tmp_path, {"training": training})


def kill_and_compare(tmp_path, sections):
    """Train once as it is and once with kill -9 at random moments; both must end the same to the bit."""
    folders = [tmp_path / "straight", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    straight, killed = (write_config(folder, **sections) for folder in folders)
    succeed("-m", "hf_ngsan.cli", "train", "--config", straight)

    moments = random.Random(0)
    kills = 0
    while True:
        process = start("-m", "hf_ngsan.cli", "train", "--config", killed, "--resume", stderr=subprocess.DEVNULL)
        checkpoints = folders[1] / "run" / "checkpoints"
        known = set(checkpoints.glob("step-*"))
        while process.poll() is None and set(checkpoints.glob("step-*")) == known:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.3))
        if process.poll() is not None or kills == 5:
            break
        os.kill(process.pid, signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert process.wait() == 0
    assert kills >= 3
    assert history_of(folders[0] / "run") == history_of(folders[1] / "run")
    last = max(path.name for path in (folders[0] / "run" / "checkpoints").iterdir())
    for name in ("best", "last", f"checkpoints/{last}"):
        assert same_weights(folders[0] / "run" / name, folders[1] / "run" / name)


@pytest.mark.parametrize("num_processes", [2, 3])
def test_several_processes_do_what_one_does(tmp_path, num_processes):
    """30 images in batches of 29 and 1: with 3 processes shares differ, and two of the last one are empty."""
    sections = {
        "model": NO_DROPOUT,
        "training": {"batch_size": 29, "adam_epsilon": 1e-4, "max_grad_norm": 1.0, "epochs": 3, "save_every_steps": 1},
    }
    folders = [tmp_path / "one", tmp_path / "several"]
    for folder in folders:
        folder.mkdir()
    one, several = (write_config(folder, **sections) for folder in folders)
    succeed("-m", "hf_ngsan.cli", "train", "--config", one)
    succeed("-m", "hf_ngsan.cli", "train", "--config", several, "--num-processes", num_processes)

    weights = [load_file(folder / "run" / "last" / "model.safetensors") for folder in folders]
    assert max((weights[0][name] - weights[1][name]).abs().max().item() for name in weights[0]) < 1e-5
    histories = [history_of(folder / "run") for folder in folders]
    for ours, theirs in zip(*histories, strict=True):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), rel=1e-4)

    shutil.copytree(folders[1] / "run", tmp_path / "killed")
    newest = max((tmp_path / "killed" / "checkpoints").iterdir())
    shutil.rmtree(newest)  # as if the run had died within its last epoch
    killed = [
        "--config",
        several,
        f"training.output_dir={tmp_path / 'killed'}",
        "--resume",
        "--num-processes",
        num_processes,
    ]
    succeed("-m", "hf_ngsan.cli", "train", *killed)
    for name in ("last", f"checkpoints/{newest.name}"):
        assert same_weights(tmp_path / "killed" / name, folders[1] / "run" / name)

    outputs = []
    for folder, extra in zip(folders, ([], ["--num-processes", num_processes]), strict=True):
        file = folder / "captions.json"
        command = ["-m", "hf_ngsan.cli", "evaluate", "--model", folders[0] / "run", "--data", DATA["spec"]]
        printed, _ = succeed(*command, "--batch-size", 2, "--output", file, *extra)
        outputs.append((json.loads(file.read_text()), json.loads(printed)))
    assert outputs[0] == outputs[1]


def test_self_critical_training_does_on_two_processes_what_it_does_on_one(tmp_path):
    sections = {
        "model": NO_DROPOUT,
        "training": {"stage": "auto", "batch_size": 29, "adam_epsilon": 1e-4, "epochs": 1, "save_every_steps": 1},
        "self_critical": {"epochs": 2, "learning_rate": 1e-3, "samples_per_image": 3, "max_new_tokens": 8},
    }
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (write_config(folder, **sections) for folder in folders)
    succeed("-m", "hf_ngsan.cli", "train", "--config", one)
    succeed("-m", "hf_ngsan.cli", "train", "--config", two, "--num-processes", 2)
    weights = [load_file(folder / "run" / "last" / "model.safetensors") for folder in folders]
    assert max((weights[0][name] - weights[1][name]).abs().max().item() for name in weights[0]) < 1e-5
    histories = [history_of(folder / "run") for folder in folders]
    assert [entry["stage"] for entry in histories[0]] == ["xe", "scst", "scst"]
    for ours, theirs in zip(*histories, strict=True):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), rel=1e-3)


def test_a_self_critical_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path):
    sections = {
        "training": {"stage": "auto", "epochs": 1, "batch_size": 2, "save_every_steps": 1, "ema_decay": 0.9},
        "self_critical": {"epochs": 3, "learning_rate": 1e-2, "samples_per_image": 3, "max_new_tokens": 8},
    }
    kill_and_compare(tmp_path, sections)


def test_the_example_under_accelerate_launch_uses_both_processes(tmp_path):
    config = write_config(tmp_path, training={"epochs": 1})
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", 2]
    output, errors = succeed(*launch, EXAMPLE, "--config", config, "training.seed=3")
    assert "on 2 processes" in errors
    assert json.loads(output)["cider_d"] >= 0
    captions = json.loads((tmp_path / "run" / "captions_test.json").read_text())
    assert len({result["image_id"] for result in captions}) == len(captions) == 6


def first_images(source, target, number):
    """Copy COCO files with the first images of each split only."""
    for split in ("train", "val", "test"):
        chosen = None
        for kind in ("captions", "instances"):
            content = json.loads((source / f"{kind}_{split}.json").read_text())
            chosen = chosen or {image["id"] for image in content["images"][:number]}
            content["images"] = [image for image in content["images"] if image["id"] in chosen]
            content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] in chosen]
            (target / f"{kind}_{split}.json").write_text(json.dumps(content))


@pytest.mark.skipif(not COCO_LAYOUT.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/coco_val2017")
def test_coco_layouts_train_and_evaluate(tmp_path):
    first_images(COCO_LAYOUT, tmp_path, number=60)
    data, run = f"coco-layout:{tmp_path}", tmp_path / "run"
    config = ROOT / "examples" / "configs" / "ngsan" / "coco_layout.yaml"
    small = [
        "model.hidden_size=32",
        "model.num_hidden_layers=1",
        "model.intermediate_size=64",
        "training.num_threads=1",
    ]
    short = {"epochs": 2, "batch_size": 5, "ema_decay": 0, "warmup_epochs": 0, "learning_rate": 0.01, "output_dir": run}
    of_training = [f"training.{key}={value}" for key, value in {**short, "mixed_precision": "bf16"}.items()]
    settings = [f"data.spec={data}", "data.min_word_count=3", *small, *of_training]
    succeed("-m", "hf_ngsan.cli", "train", "--config", config, *settings)
    first, last = history_of(run)
    assert last["loss"] < first["loss"]
    assert list((run / "tensorboard").glob("events.*"))
    captions = tmp_path / "captions.json"
    printed, _ = succeed("-m", "hf_ngsan.cli", "evaluate", "--model", run, "--data", data, "--output", captions)
    assert 0 <= json.loads(printed)["cider_d"] < 10
    assert len(json.loads(captions.read_text())) == 60
    printed, _ = succeed(
        "-m", "hf_ngsan.cli", "score", "--predictions", captions, "--references", tmp_path / "captions_test.json"
    )
    assert "cider_d" in printed


READER = """
from hf_ngsan.data import Reader, load_scenes, register_reader

def load(split):
    return load_scenes(split, size=30, seed=3)

register_reader(Reader(name="mine", loader=load, summary="scenes of a user's", columns=("captions",)))
"""


def test_modules_of_the_user_are_imported_by_every_process(tmp_path):
    (tmp_path / "my_reader.py").write_text(READER)
    config = write_config(tmp_path, data={"spec": "mine"}, training={"epochs": 1})
    arguments = ["train", "--import", "my_reader", "--config", config, "--num-processes", 2]
    _, errors = succeed("-m", "hf_ngsan.cli", *arguments, cwd=tmp_path)
    assert "on 2 processes" in errors
    assert (tmp_path / "run" / "best" / "model.safetensors").is_file()


BACKBONE = """
import torch
from transformers import AutoBackbone, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.backbone_utils import BackboneConfigMixin, BackboneMixin
from transformers.modeling_outputs import BackboneOutput


class MyConfig(BackboneConfigMixin, PreTrainedConfig):
    model_type = "backbone_of_a_journey"

    def __post_init__(self, **kwargs):
        self.stage_names = ["stem", "stage1"]
        self.set_output_features_output_indices(kwargs.pop("out_features", None), kwargs.pop("out_indices", None))
        super().__post_init__(**kwargs)


class MyBackbone(BackboneMixin, PreTrainedModel):
    config: MyConfig

    def __init__(self, config):
        super().__init__(config)
        self.num_features = [3, 6]
        self.convolution = torch.nn.Conv2d(3, 6, 4, stride=4)
        self.post_init()

    def forward(self, pixel_values, **kwargs):
        return BackboneOutput(feature_maps=(self.convolution(pixel_values),))


AutoConfig.register(MyConfig.model_type, MyConfig)
AutoBackbone.register(MyConfig, MyBackbone)
if __name__ == "__main__":
    torch.manual_seed(0)
    MyBackbone(MyConfig()).save_pretrained("backbone")
"""


def test_a_backbone_of_the_user_is_extracted_with_and_attached(tmp_path):
    (tmp_path / "my_backbone.py").write_text(BACKBONE)
    succeed("my_backbone.py", cwd=tmp_path)
    photos = write_photos(tmp_path / "photos", 4)
    names = {number: f"{number:06d}.png" for number in range(1, 5)}
    file = write_coco_file(photos / "captions.json", names, {number: [f"photo {number}"] for number in names})
    command = ["-m", "hf_ngsan.cli", "--import", "my_backbone"]
    vision = ["--backbone", "backbone", "--grid-size", 2, 2]
    extract = ["--images", file, "--split", "train", "--dtype", "float32", "--num-workers", 2, "--output", "features"]
    succeed(*command, "extract", *vision, *extract, "--num-processes", 2, cwd=tmp_path)
    data = {"spec": f"features:{tmp_path / 'features'}", "validation_split": None}
    succeed(*command, "train", "--config", write_config(tmp_path, data=data), cwd=tmp_path)
    succeed(*command, "attach-vision", "--model", "run", *vision, "--output", "captioner", cwd=tmp_path)
    of_photos, _ = succeed(*command, "caption", "--model", "captioner", "photos", cwd=tmp_path)
    of_rows, _ = succeed(
        *command, "caption", "--model", "run", "--data", data["spec"], "--split", "train", cwd=tmp_path
    )
    captions = [[line.split("\t")[1] for line in lines.splitlines()] for lines in (of_photos, of_rows)]
    assert captions[0] == captions[1] and len(captions[0]) == 4 and all(captions[0])
