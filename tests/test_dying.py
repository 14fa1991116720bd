"""Work that is killed at a file operation and resumed gives the same files as uninterrupted work, for each command."""

import json
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
from tests.tasks import tiny_questions, tiny_retrieval, tiny_translation
from tests.tasks.tiny import tiny_sections

pytestmark = pytest.mark.timeout(7200)

TASKS = [f"hf_ngsan.tasks.{name}" for name in ("captioning", "question_answering", "retrieval", "translation")]
PRELOADED = ["tests.test_dying", "hf_ngsan.training.run", "hf_ngsan.extraction.extract", *TASKS]
PRELOADED += ["hf_ngsan.data.conversion", "hf_ngsan.sharing.upload", "hf_ngsan.tasks.retrieval_search"]
PRELOADED += ["hf_ngsan.models.modeling_ngsan", "hf_ngsan.tasks.captioning_models", "torch.utils.tensorboard"]
NUM_DOUBLE_KILLS = 20


def train(folder: Path) -> int:
    return main(["train", "--config", str(folder / "tiny.yaml"), "--resume"])


def extract(folder: Path, *further: str) -> int:
    """Features of one folder of photos, to which those of another are added."""
    options = ["--backbone", str(folder / "vision"), "--output", "features", "--batch-size", "2", "--num-workers", "0"]
    options += ["--images-per-shard", "4", "--skip-errors", *further]
    for split in ("train", "test"):
        code = main(["extract", "--images", str(folder / split), "--split", split, *options])
        if code:
            return code
    return 0


def outcome(folder: Path) -> dict[str, object]:
    """The files of a run or an extraction, without times."""
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
    actual = outcome(folder)
    return [name for name in sorted({*expected, *actual}) if expected.get(name) != actual.get(name)]


def killed_and_resumed(work, place: Path, fatal: tuple[int, ...], expected: dict) -> tuple[bool, str]:
    """Kills the work at operations, one run after another, and resumes it.

    Returns whether it was killed, and the problem, if there is one. TensorBoard writes in a separate thread, so a run
    may end before the operation.
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
    """Returns the operations and the result of uninterrupted work."""
    code = in_process(work, place / "straight", record=place / "operations.json")
    assert code == 0, (place / "straight.log").read_text()
    return json.loads((place / "operations.json").read_text()), outcome(place / "straight")


@pytest.fixture(scope="module")
def pool():
    with workers(*PRELOADED) as pool:
        yield pool


def kill(pool, work, place: Path, once: bool) -> None:
    """Kills work once in the middle, or at every operation, and at two random operations in a row."""
    operations, expected = pool.submit(undisturbed, work, place).result()
    seen = "\n".join(operations)
    assert all(Path(name).name in seen for name in expected), sorted(expected)
    numbers = random.Random(0)
    moments = [(number,) for number in range(1, len(operations) + 1)]
    moments += [tuple(numbers.randint(1, len(operations)) for _ in range(2)) for _ in range(NUM_DOUBLE_KILLS)]
    moments = [(len(operations) // 2,)] if once else moments
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


FAST_WITH_LOG = {"learning_rate": 0.03, "tracker": "tensorboard"}


def training(folder: Path):
    """A run with a new best model in both stages, more checkpoints than are kept, and checkpoints within an epoch."""
    sections = tiny_sections(
        Path("run"),
        data={"spec": "scenes:size=10,validation=2,seed=3"},
        training={"stage": "auto", "epochs": 1, "save_every_steps": 1, "ema_decay": 0.5, **FAST_WITH_LOG},
        self_critical={"epochs": 1, "learning_rate": 0.03, "samples_per_image": 2, "max_new_tokens": 6},
        evaluation={"metric": "bleu_1", "max_new_tokens": 6, "num_beams": 1, "batch_size": 8},
    )
    (folder / "tiny.yaml").write_text(yaml.safe_dump(sections))
    return partial(train, folder)


def extraction(folder: Path, *options: str):
    """Two splits of photos; one photo cannot be read."""
    write_photos(folder / "train", 9)
    (folder / "train" / "000004.png").write_bytes(b"")
    write_photos(folder / "test", 5, first=50)
    tiny_vision().save_pretrained(folder / "vision")
    tiny_processor().save_pretrained(folder / "vision")
    return partial(extract, folder, *options)


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


def write_arrays(folder: Path) -> list[str]:
    """Grids of images, one of them broken, and the command that converts them."""
    (folder / "arrays").mkdir()
    for number in range(7):
        np.save(folder / "arrays" / f"{number}.npy", np.full((2, 2, 4), number, np.float32))
    (folder / "arrays" / "3.npy").write_bytes(b"")
    return ["convert", str(folder / "arrays"), "--images-per-shard", "2", "--skip-errors", "--output"]


def write_dual_encoder(folder: Path) -> list[str]:
    write_photos(folder / "photos", 5)
    model = tiny_dual_encoder.tiny_model(vision_config=tiny_dual_encoder.VISION)
    save_model(model, tiny_dual_encoder.tiny_processor(pixels=True), folder / "model")
    command = ["index", "--images", str(folder / "photos"), "--model", str(folder / "model"), "--num-workers", "0"]
    return [*command, "--images-per-shard", "2", "--backend", "exact", "--output"]


def write_model(folder: Path) -> list[str]:
    save_model(tiny_captioner(), tiny_captioner_processor(), folder / "model")
    return ["push", str(folder / "model"), "user/model", "--dry-run"]


def make_output(command: list[str]) -> int:
    """Runs a command until its output exists, because a push and a conversion write it only once."""
    import hf_ngsan.sharing.upload

    hf_ngsan.sharing.upload.check_checkpoint = lambda folder: None  # a separate process
    return 0 if Path("output").exists() and command[0] != "index" else main([*command, "output"])


def training_of(task: str, folder: Path):
    (folder / "tiny.yaml").write_text(yaml.safe_dump(OTHER_TASKS[task](folder)))
    return partial(train, folder)


def extraction_of_copies(folder: Path):
    return extraction(folder, "--copies", "2", "--smallest-crop", "0.5", "--flip", "0.5")


def command(write, folder: Path):
    return partial(make_output, write(folder))


WORKS = {
    "training": training,
    **{f"training: {task}": partial(training_of, task) for task in OTHER_TASKS},
    "extraction": extraction,
    "extraction of copies": extraction_of_copies,
    "conversion": partial(command, write_arrays),
    "an index": partial(command, write_dual_encoder),
    "a push": partial(command, write_model),
}
"""Each writes the inputs of the work into a folder, and returns the work."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_that_is_killed_half_way(pool, name, tmp_path):
    kill(pool, WORKS[name](tmp_path), tmp_path, once=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORKS)
def test_work_that_is_killed_at_every_operation(pool, name, tmp_path):
    kill(pool, WORKS[name](tmp_path), tmp_path, once=False)
