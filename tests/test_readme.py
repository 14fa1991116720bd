"""The commands of README and docs: page by page, in their order, as a user types them, on tiny data."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from urllib.request import urlopen

import pytest

from hf_ngsan.cli import main, parse
from hf_ngsan.reproduction import find_table, results
from hf_ngsan.tasks import load_training_config
from tests.commands.running import prints
from tests.hub_stub import REPOSITORY
from tests.page_data import write_inputs
from tests.sharing.conftest import online  # noqa: F401
from tests.test_documents import PAGES, lines_of, name_of

ELSEWHERE = ("docs/adding_a_model.md", "docs/adding_data.md")
"""Pages whose commands tests/test_adding_a_model.py runs."""
NOT_RUN = {
    "they install or build": ("python3.11 -m venv", "pip install", "make"),
    "they need other machines": ("accelerate launch", "curl -L", "docker", "helm", "kubectl", "MILVUS_TOKEN="),
    "they need runs of benchmarks": (
        *("python benchmarks", "python docs", "python conversion", "python examples"),
        "hf-ngsan evaluate --model runs/flickr8k/",
    ),
    "they need a server or a bucket": (
        "hf-ngsan index --images photos --output photos.index --backend milvus:http",
        "python examples/ray/embed.py s3://",
    ),
}
"""Beginnings of the commands that no test runs, by the reason."""
SCENES = "size=24,validation=4,test=20"
SIZES_OF_MODELS = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 1}
TINY = {
    "ngsan": {**SIZES_OF_MODELS, "geometry_hidden_size": 4},
    "spatial_captioner": {"hidden_size": 16, "intermediate_size": 32},
    "mhsan": {"hidden_size": 12, "projection_dim": 10, "attention_hidden_size": 6},
    "mhsan/mhsan": {
        **{"hidden_size": 12, "projection_dim": 10, "attention_hidden_size": 6, "num_text_heads": 2},
        "vision_config": "{backbone_config: null, pretrained: microsoft/resnet-50}",
        "text_config": "{word_embedding_size: 8, hidden_size: 8, num_hidden_layers: 1}",
    },
    "nsa_transformer": SIZES_OF_MODELS,
    "mcan": {**SIZES_OF_MODELS, "word_embedding_size": 8, "reduction_hidden_size": 8, "pooled_size": 16},
    "rstnet": {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32},
    "guests": {},
    "ngsan/fine_tune": {"init_from": "models/captioner"},
    "ngsan/vatex_n_san": {**SIZES_OF_MODELS, "visual_feature_size": 6},
    "ngsan/moving_scenes": SIZES_OF_MODELS,
    "ngsan/videos": SIZES_OF_MODELS,
}
"""Sizes of the models that are trained, by the folder of their training config."""
EXTRACTED = "extract --images images:flickr8k --split {} --backbone efficientnet-lite2 --image-size 352 --output"
OF_OTHER_PAGES = {
    "runs/scenes": ["train --config ngsan/scenes"],
    "features": [f"{EXTRACTED.format('train')} features --copies 4", f"{EXTRACTED.format('validation')} features"],
    **{name: [f"cp features {name}"] for name in ("FEATURES", "REGIONS", "LITE0", "LAST")},
    **{f"photos/{year}": [f"cp photos/train photos/{year}"] for year in (2024, 2025)},
    **{name: [f"cp models/{name.removeprefix('runs/')} {name}"] for name in ("captioner", "runs/vqa", "MODEL")},
    "photos.index": ["index --images photos --output photos.index"],
    "captions.json": ["evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json"],
    "references.json": ["references --data scenes --split test --output references.json"],
    "runs/tuned-1": ["cp runs/tuned runs/tuned-1"],
    "runs/first": [
        "train --config ngsan/flickr8k --stage xe data.spec=features:GRIDS augmentation.feature_copies=false "
        "training.output_dir=runs/first"
    ],
    **{f"runs/{name}": [f"cp runs/first runs/{name}"] for name in ("second", "third", "fourth")},
}
"""Commands that make what a page uses and another page makes, by its name."""
RUN = ("best/config.json", "best/*.safetensors", "last/config.json", "last/*.safetensors", "training_config.yaml")
RUN += ("checkpoints/*", "tensorboard/*", "history.jsonl")
"""Files of a run, as described in docs/training.md."""
LINES = {
    "answer": r"\S+\t[^\t]+\t[01]\.\d+",
    "caption": r'\S+\t.*|\{"image": ".*", "caption": .*\}',
    "score": r"\w+ +\d\.\d{4}|\d+ images.*",
    "search": r"-?[01]\.\d+\t.*\.(jpg|png).*",
    "translate": r".*",
}
"""A regular expression for every line that a command prints."""
WITH_OPTIONS = {
    "caption photo.jpg": r"\t\w+( \S+)*|\{",
    "--scores": r"\t-\d\.\d+\t\d\.\d+(\tunlike the training images)?$",
    "required_words=dog,grass": r"(?=.*\bdog\b)(?=.*\bgrass\b)",
}
"""What each line has too."""
SCORES = ({"cider_d", "bleu_4"}, {"images", "captions"}, {"bleu", "signatures"}, {"questions"}, {"perplexity"})
"""Scores that `evaluate` prints: of captions, retrieval, translations, answers and words."""


def smaller(command: list[str]) -> list[str]:
    """Returns a smaller version of a command: small models, one epoch, few scenes, one process."""
    if "--num-processes" in command:
        command = command[: command.index("--num-processes")]
    words = [re.sub(r"(?<=scenes:)size=\d+(,validation=\d+)?,test=\d+", SCENES, word) for word in command]
    words = [word.replace("vatex:DIR", "vatex:VATEX") for word in words]
    words = [f"{word}:{SCENES}" if word in ("scenes", "moving_scenes") else word for word in words]
    if command[0] in ("extract", "index"):
        words += ["--num-workers", "0"]
    if command[0] == "caption" and {"--model", "--save-attention"} <= {*command}:
        words += ["--generate", "min_new_tokens=3"]  # a map for each word
    if command[0] == "reproduce":
        return reproduced(words)
    if command[0] != "train":
        return words
    config = command[command.index("--config") + 1].removeprefix("examples/configs/")
    less = [*(f"model.{name}={value}" for name, value in TINY.get(config, TINY[config.split("/")[0]]).items())]
    inherits = (
        config.endswith(("fine_tune", "self_critical", "backbone")) or "init_from" in str(words) or "guests" in config
    )
    words_of = "data.vocab_size=310" if config.startswith("nsa") else "data.min_word_count=1"
    less += ["training.num_threads=1", *[words_of] * (not inherits)]
    if config.startswith(("mhsan", "guests")):
        less.append("training.batch_size=2")
    if config.startswith(("ngsan/flickr8k", "ngsan/regions")):
        less.append("evaluation.max_new_tokens=4")
    if config.startswith("ngsan/flickr8k") and "images:" in str(words):
        less.append("data.limit=4")
    elif config == "ngsan/flickr8k":  # until captions have words
        less += ["training.epochs=20", "training.warmup_epochs=0", "training.learning_rate=0.01"]
        less += ["evaluation.every_epochs=20"]
    if config == "mhsan/mhsan":
        less += [
            "data.word_vectors=null",
            "data.dictionary=null",
            "data.image_size=32",
            "training.train_word_vectors=true",
        ]
        less += [f"{stage}_stage.epochs=1" for stage in ("projection", "text", "image")]
    if config.startswith("mcan"):
        less.append("data.min_answer_count=1")
    if "scenes" in config:
        images = ",images=true,image_size=32" if config.startswith("spatial") else ""
        less.append(f"data.spec={'moving_' * ('moving' in config)}scenes:{SCENES}{images}")
    less.append("training.epochs=1")
    if "--stage" in command or config.endswith("self_critical"):
        less += ["self_critical.epochs=1"]
    named = {word.split("=")[0] for word in words}
    less = {word.split("=")[0]: word for word in reversed(less) if word.split("=")[0] not in named}
    return [*(re.sub(r"^(\w+\.epochs)=.*", r"\1=1", word) for word in words), *less.values()]


def reproduced(words: list[str]) -> list[str]:
    """Returns a smaller version of `reproduce`: two rows of tiny models, one seed."""
    options = parse(words)
    table = find_table(options.paper, options.table)
    sizes = {f"model.{name}": value for name, value in TINY[options.paper].items()}
    rows = [] if "--only" in words else ["--only", *[*table.rows][:2]]
    changed = " ".join(f"{run.changes} {run.paper_changes}" for run in table.runs.values())
    sizes = {"training.epochs": 1, "data.min_word_count": 1, **sizes}
    less = [f"{name}={value}" for name, value in sizes.items() if f"{name}=" not in changed]
    return [words[0], words[1], *less, *words[2:], *rows, "--seeds", "1", "--processes", "1"]


def is_run(line: str) -> bool:
    return not line.startswith(tuple(beginning for beginnings in NOT_RUN.values() for beginning in beginnings))


def lines_run(page: Path) -> list[str]:
    """The lines of a page that are run, each once."""
    return [line for line in dict.fromkeys(map(shlex.join, lines_of(page))) if is_run(line)]


def test_tables_name_lines_of_pages():
    lines = {shlex.join(line) for page in PAGES for line in lines_of(page)}
    assert all(any(words in line for line in lines) for words in WITH_OPTIONS)
    for beginnings in NOT_RUN.values():
        assert [start for start in beginnings if not any(line.startswith(start) for line in lines)] == []


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the inputs of all pages, where `OF_OTHER_PAGES` is made when a page first needs it."""
    folder = tmp_path_factory.mktemp("pages") / "inputs"
    folder.mkdir()
    write_inputs(folder)
    return shutil.copytree(folder, folder.with_name("made")).with_name("inputs")


@pytest.fixture
def page_folder(inputs, tmp_path, monkeypatch, small_meteor):
    """The current folder, with the inputs of the pages."""
    shutil.copytree(inputs, tmp_path / "page", symlinks=True)
    monkeypatch.chdir(tmp_path / "page")
    monkeypatch.setattr(results, "run_process", run_here)
    return tmp_path / "page"


def run_here(planned, device, running, modules):
    """Runs the commands of a row of `reproduce` in this process."""
    planned.folder.parent.mkdir(parents=True, exist_ok=True)
    assert [main(list(command)) for command in planned.commands] == [0, 0]


WITH_LINES = [page for page in PAGES if name_of(page) not in ELSEWHERE and lines_run(page)]


@pytest.mark.slow
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("page", WITH_LINES, ids=name_of)
def test_commands_of_a_page_keep_their_promises(page, inputs, request, capsys):
    lines = lines_run(page)
    hub = request.getfixturevalue("online") if any(" push " in line for line in lines) else None
    servers = Servers(inputs.with_name("made"))
    try:
        for line in lines:
            program, *words = shlex.split(line)
            if program != "hf-ngsan":
                servers.ask([program, *words])
            elif words[0] in ("serve", "app"):
                servers.start(words)
            else:
                keep(words, capsys, inputs.with_name("made"))
    finally:
        servers.stop()
    if hub is not None:
        assert "README.md" in hub.repositories[REPOSITORY].at("main")[1]


class Servers:
    """The server of a page: at most one at a time."""

    process = None

    def __init__(self, made: Path) -> None:
        self.made = made

    def start(self, words: list[str]) -> None:
        self.stop()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        provide(words, self.made)
        words = [word for word in words if word not in ("--port", "8000")]
        program = [sys.executable, "-m", "hf_ngsan.cli", *smaller(words), "--port", self.port]
        self.process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        while True:
            assert self.process.poll() is None, words
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/{'health' * (words[0] == 'serve')}") as answer:
                    assert answer.status == 200
                return
            except OSError:
                time.sleep(0.1)

    def ask(self, words: list[str]) -> None:
        """Runs a client or a script."""
        words = [sys.executable if word == "python" else word.replace("8000", self.port) for word in words]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        assert done.stdout.strip() and "error" not in done.stdout, done.stdout

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait(60) in (0, 130)
            self.process = None


def outputs_of(command: list[str]) -> list[str]:
    """The files and folders that a command writes."""
    options = parse(command)
    if command[0] == "train":
        return [str(load_training_config(options.config, options.overrides).output_dir)]
    names = ("output", "figure", "figures", "save_attention", "dry_run", "record")
    return [value for name in names if (value := getattr(options, name, None)) and value is not True]


def provide(command: list[str], made: Path) -> None:
    """Makes what a command uses if it is missing, as other pages do, in a folder for all pages."""
    written = [] if command[0] == "cp" else [str(name) for name in outputs_of(command)]
    for name, commands in OF_OTHER_PAGES.items():
        used = re.search(rf"(^|[\s:=,\[']){re.escape(name)}($|[\s,/\]'])", shlex.join(command))
        if not used or name in (*written, *command[2:][: command[0] == "cp"]) or Path(name).exists():
            continue
        is_copy = commands[0].startswith("cp ")
        with chdir(Path() if is_copy else made):
            for words in [] if Path(name).exists() else map(shlex.split, commands):
                provide(words, made)
                assert words[0] != "cp" or shutil.copytree(*words[1:])
                assert words[0] == "cp" or main(smaller(words)) == 0
        if not Path(name).exists():
            (shutil.copytree if (made / name).is_dir() else shutil.copy)(made / name, name)


def keep(command: list[str], capsys: pytest.CaptureFixture, made: Path) -> None:
    """Runs a command of a page in the current folder, and checks its output and files."""
    provide(command, made)
    name = shlex.join(command)
    printed = prints(capsys, *smaller(command))
    lines = printed.splitlines()
    if command[0] in LINES and "--output" not in command:
        assert all(re.fullmatch(LINES[command[0]], line) for line in lines), (name, printed)
        patterns = [pattern for words, pattern in WITH_OPTIONS.items() if words in name]
        assert all(re.search(pattern, line) for line in lines for pattern in patterns), (name, printed)
        if command[0] != "search" and ("photo.jpg" in command or "--limit" in command):
            number = re.search(r"(?:--limit |return_sequences=|--top-k )(\d+)", name)
            assert len({*lines}) == len(lines) == int(number[1] if number else 1), (name, printed)
    if command[0] == "evaluate":
        assert any(scores <= json.loads(printed).keys() for scores in SCORES), (name, printed)
    places = outputs_of(command)
    patterns = [pattern for place in places for pattern in (place, f"{place}/*")]
    if command[0] == "train":
        patterns = [f"{places[0]}/{pattern}" for pattern in RUN]
    for pattern in patterns:
        files = [*Path().glob(str(pattern))]
        assert all(file.is_dir() or file.stat().st_size for file in files), (name, pattern)
        assert files or Path(pattern).parent.is_file(), (name, pattern)
