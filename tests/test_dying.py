"""Runs and extractions that are killed at every single file operation end, once resumed, as if they never had been.

Trainings of other tasks than captioning, extraction of copies, conversion, indexing and the staging of a push share
loops and writers with others: they are killed at every tenth operation, and with `HF_NGSAN_ALL_KILLS=1` at every one.
"""

import json
import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from hf_ngsan.cli import main
from hf_ngsan.loading.models import save_model
from tests.dying import DIED, in_process, workers
from tests.extraction.tiny import tiny_processor, tiny_vision, write_photos
from tests.models.mhsan import tiny as tiny_dual_encoder
from tests.models.tiny import tiny_captioner
from tests.models.tiny import tiny_processor as tiny_captioner_processor
from tests.tables import each_row
from tests.tasks import tiny_questions, tiny_retrieval, tiny_translation
from tests.tasks.tiny import tiny_sections

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # minutes on two idle processors

PRELOADED = [
    "tests.test_dying",
    "hf_ngsan.training.run",
    "hf_ngsan.tasks.captioning.task",
    "hf_ngsan.extraction.extract",
    "hf_ngsan.tasks.question_answering.task",
    "hf_ngsan.tasks.retrieval.task",
    "hf_ngsan.tasks.translation.task",
    "hf_ngsan.tasks.retrieval.index",
    "hf_ngsan.data.conversion",
    "hf_ngsan.sharing.upload_folder",
]
PRELOADED += ["hf_ngsan.models.modeling_ngsan", "hf_ngsan.tasks.captioning.build", "torch.utils.tensorboard"]
NUM_DOUBLE_KILLS = 20
EVERY = 1 if os.environ.get("HF_NGSAN_ALL_KILLS") else 10
"""Operations of the works that are not killed at every one."""


def train(folder: Path) -> int:
    return main(["train", "--config", str(folder / "tiny.yaml"), "--resume"])


def extract(folder: Path, *further: str) -> int:
    """Features of one folder of photos, and those of another one added to them."""
    options = ["--backbone", str(folder / "vision"), "--output", "features", "--batch-size", "2", "--num-workers", "0"]
    options += ["--images-per-shard", "4", *further]
    for split in ("train", "test"):
        code = main(["extract", "--images", str(folder / split), "--split", split, *options])
        if code:
            return code
    return 0


def outcome(folder: Path) -> dict[str, object]:
    """The files that a run or an extraction has left, without times."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if "/tensorboard/" not in name:
            files[name] = comparable(file)
    return files


def comparable(file: Path) -> object:
    if file.name == "history.jsonl":
        return [without_times(json.loads(line)) for line in file.read_text().splitlines()]
    if file.name == "manifest.json":
        return sorted(json.loads(file.read_text()))
    if file.name == "progress.json" or file.parent.name == "records":
        return without_times(json.loads(file.read_text()))
    if file.suffix == ".safetensors":  # whose writer lists shared weights in any order
        content = file.read_bytes()
        tensors = 8 + int.from_bytes(content[:8], "little")
        return json.loads(content[8:tensors]), content[tensors:]
    return file.read_bytes()


def without_times(value: object) -> object:
    if isinstance(value, list):
        return [without_times(entry) for entry in value]
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if "second" not in key and key != "mtime_ns"}
    return value


def differences(folder: Path, expected: dict) -> list[str]:
    found = outcome(folder)
    return [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]


def killed_and_resumed(work, place: Path, fatal: tuple[int, ...], expected: dict) -> tuple[bool, str]:
    """Kills the work at operations, one run after the other, and resumes it.

    A run may come to its end before the operation: TensorBoard writes in a thread of its own, so now and then it
    writes less often.

    Returns:
        Whether it was killed, and what went wrong, if anything.
    """
    name = "-".join(map(str, fatal))
    folder = place / name
    codes = [in_process(work, folder, operation) for operation in fatal]
    codes.append(in_process(work, folder))
    log = folder.with_suffix(".log")
    if any(code not in (0, DIED) for code in codes) or codes[-1] != 0:
        return DIED in codes, f"killed at {name}: exit codes {codes}: {log.read_text()[-600:]}"
    wrong = differences(folder, expected)
    return DIED in codes, f"killed at {name}: {', '.join(wrong)} differ" if wrong else ""


def undisturbed(work, place: Path) -> tuple[list[str], dict]:
    """Returns the operations and the outcome of work that nothing ends."""
    code = in_process(work, place / "straight", record=place / "operations.json")
    assert code == 0, (place / "straight.log").read_text()
    return json.loads((place / "operations.json").read_text()), outcome(place / "straight")


def kill_everywhere(work, place: Path, every: int = 1) -> None:
    """Kills work at every operation, or at some of them, and at two random ones in a row."""
    with workers(*PRELOADED) as pool:
        operations, expected = pool.submit(undisturbed, work, place).result()
        seen = "\n".join(operations)
        assert all(Path(name).name in seen for name in expected), sorted(expected)
        numbers = random.Random(0)
        moments = [(number,) for number in range(1, len(operations) + 1, every)]
        moments += [
            tuple(numbers.randint(1, len(operations)) for _ in range(2)) for _ in range(NUM_DOUBLE_KILLS // every)
        ]
        task = partial(killed_and_resumed, work, place, expected=expected)
        results = list(pool.map(task, moments))
    assert sum(was_killed for was_killed, _ in results) > 0.95 * len(moments)
    problems = [
        f"{problem} (operation: {operations[moment[0] - 1]})"
        for moment, (_, problem) in zip(moments, results, strict=True)
        if problem
    ]
    assert not problems, f"{len(problems)} of {len(moments)}:\n" + "\n".join(problems)


@pytest.fixture(autouse=True)
def single_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def write_training(folder: Path) -> None:
    """A run with a new best model in both stages, more checkpoints than are kept, and some within an epoch."""
    sections = tiny_sections(
        Path("run"),
        data={"spec": "scenes:size=10,validation=2,seed=3"},
        training={
            "stage": "auto",
            "epochs": 1,
            "save_every_steps": 1,
            "learning_rate": 0.03,
            "ema_decay": 0.5,
            "tracker": "tensorboard",
        },
        self_critical={"epochs": 1, "learning_rate": 0.03, "samples_per_image": 2, "max_new_tokens": 6},
        evaluation={"metric": "bleu_1", "max_new_tokens": 6, "num_beams": 1, "batch_size": 8},
    )
    (folder / "tiny.yaml").write_text(yaml.safe_dump(sections))


def write_extraction(folder: Path) -> None:
    """Two splits of photos, of which one cannot be read, and a vision encoder."""
    write_photos(folder / "train", 9)
    (folder / "train" / "000004.png").write_bytes(b"")
    write_photos(folder / "test", 5, first=50)
    tiny_vision().save_pretrained(folder / "vision")
    tiny_processor().save_pretrained(folder / "vision")


def test_training_killed_at_every_operation(tmp_path):
    write_training(tmp_path)
    kill_everywhere(partial(train, tmp_path), tmp_path)


def test_extraction_killed_at_every_operation(tmp_path):
    write_extraction(tmp_path)
    kill_everywhere(partial(extract, tmp_path), tmp_path)


def test_extraction_of_copies_killed_at_operations(tmp_path):
    write_extraction(tmp_path)
    copies = partial(extract, tmp_path, "--copies", "2", "--smallest-crop", "0.5", "--flip", "0.5")
    kill_everywhere(copies, tmp_path, EVERY)


SHORT = {"epochs": 2, "save_every_steps": 2}
OTHER_TASKS = {
    "questions": lambda folder: tiny_questions.tiny_sections(
        Path("run"), tiny_questions.save_questions(folder / "questions"), training=SHORT
    ),
    "retrieval": lambda folder: tiny_retrieval.tiny_sections(Path("run"), training=SHORT),
    "translation": lambda folder: {
        **(sections := tiny_translation.tiny_sections(folder, batch_tokens=150, **SHORT)),
        "training": {**sections["training"], "output_dir": "run"},
    },
}


@each_row("task", OTHER_TASKS)
def test_training_of_another_task_killed_at_operations(task, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(OTHER_TASKS[task](tmp_path)))
    kill_everywhere(partial(train, tmp_path), tmp_path, EVERY)


def write_arrays(folder: Path) -> list[str]:
    """Grids of images, one of them broken, and the command that converts them."""
    (folder / "arrays").mkdir()
    for number in range(7):
        np.save(folder / "arrays" / f"{number}.npy", np.full((2, 2, 4), number, np.float32))
    (folder / "arrays" / "3.npy").write_bytes(b"")
    return ["convert", str(folder / "arrays"), "--images-per-shard", "2", "--skip-broken", "--output"]


def write_dual_encoder(folder: Path) -> list[str]:
    write_photos(folder / "photos", 5)
    model = tiny_dual_encoder.tiny_model(vision_config=tiny_dual_encoder.VISION)
    save_model(model, tiny_dual_encoder.tiny_processor(pixels=True), folder / "model")
    command = ["index", "--images", str(folder / "photos"), "--model", str(folder / "model"), "--num-workers", "0"]
    return [*command, "--images-per-shard", "2", "--to", "exact", "--output"]


def write_model(folder: Path) -> list[str]:
    save_model(tiny_captioner(), tiny_captioner_processor(), folder / "model")
    return ["push", str(folder / "model"), "user/model", "--dry-run"]


def make_output(command: list[str]) -> int:
    """Runs a command until it has its output, which a push and a conversion make once."""
    import hf_ngsan.sharing

    hf_ngsan.sharing.check_checkpoint = lambda folder: None  # a process of its own, which reads and writes nothing
    return 0 if Path("output").exists() and command[0] != "index" else main([*command, "output"])


@each_row("write", [write_arrays, write_dual_encoder, write_model])
def test_command_killed_at_operations(write, tmp_path):
    kill_everywhere(partial(make_output, write(tmp_path)), tmp_path, EVERY)
