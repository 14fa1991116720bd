"""The commands of README and docs: page by page, in their order, as a user types them, on tiny data."""

import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir, redirect_stdout, suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from hf_ngsan.cli import main, parse
from hf_ngsan.data import load_data
from hf_ngsan.reproduction import find_table, results
from hf_ngsan.tasks import load_training_config
from tests.commands.running import prints
from tests.exporting import eager
from tests.hub_stub import REPOSITORY
from tests.page_data import write_inputs
from tests.sharing.conftest import online  # noqa: F401
from tests.test_documents import PAGES, ROOT, lines_of, name_of

TABLES = yaml.safe_load((ROOT / "tests" / "pages" / "tables.yaml").read_text(encoding="utf-8"))
SCENES = "size=24,validation=4,test=20"


def smaller(command: list[str]) -> list[str]:
    """Returns a smaller version of a command: small models, one epoch, few scenes, one process."""
    if "--num-processes" in command:
        command = command[: command.index("--num-processes")]
    words = [re.sub(r"(?<=scenes:)size=\d+(,validation=\d+)?,test=\d+", SCENES, word) for word in command]
    words = [f"{word}:{SCENES}" if word in ("scenes", "moving_scenes") else word for word in words]
    words = [re.sub(r"^(\w+\.epochs)=.*", r"\1=1", word) for word in words]
    for pattern, changes in TABLES["smaller"].items():
        if re.match(pattern, shlex.join(command)):
            names = {word.split("=")[0] for word in words if "=" in word}
            words += [change for change in changes if change.split("=")[0] not in names]
    if command[0] == "reproduce":  # five rows of tiny models, one seed
        table = find_table(command[1], parse(command).table)
        rows = " ".join(f"{run.changes} {run.paper_changes}" for run in table.runs.values())
        sizes = smaller(["train", "--config", f"{command[1]}/"])[3:]
        sizes = [word for word in sizes if word.split("=")[0] not in rows]
        only = [] if "--only" in words else ["--only", *[*table.rows][:5]]
        words = [*words[:2], *sizes, *words[2:], *only, "--seeds", "1", "--processes", "1"]
    return words


def lines_run(page: Path) -> list[str]:
    """The lines of a page that are run, each once."""
    not_run, places = tuple(chain(*TABLES["not_run"].values())), TABLES["places"]
    lines = [line for line in dict.fromkeys(map(shlex.join, lines_of(page))) if not line.startswith(not_run)]
    return [re.sub("|".join(places), lambda match: places[match[0]], line) for line in lines]


def test_tables_name_lines_of_pages():
    lines = {shlex.join(line) for page in PAGES for line in lines_of(page)}
    assert all(any(words in line for line in lines) for words in TABLES["lines_with"])
    for beginning in chain(*TABLES["not_run"].values()):
        assert any(line.startswith(beginning) for line in lines), beginning
    assert all(any(place in line for line in lines) for place in TABLES["places"])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the inputs of all pages, where `other_pages` of the tables are made when a page first needs it."""
    folder = tmp_path_factory.mktemp("pages") / "inputs"
    folder.mkdir()
    write_inputs(folder)
    return shutil.copytree(folder, folder.with_name("made"), symlinks=True).with_name("inputs")


def run_here(planned, device, running, modules):
    """Runs the commands of a row of `reproduce` in this process."""
    planned.folder.parent.mkdir(parents=True, exist_ok=True)
    assert [main(list(command)) for command in planned.commands] == [0, 0]


WITH_LINES = [page for page in PAGES if name_of(page) not in TABLES["elsewhere"] and lines_run(page)]


@pytest.mark.slow
@pytest.mark.usefixtures("small_meteor")
@pytest.mark.parametrize("page", WITH_LINES, ids=name_of)
def test_commands_of_a_page_keep_their_promises(page, inputs, tmp_path, request, capsys, monkeypatch):
    shutil.copytree(inputs, tmp_path / "page", symlinks=True, copy_function=os.link)
    monkeypatch.chdir(tmp_path / "page")
    monkeypatch.setattr(results, "run_process", run_here)
    lines = lines_run(page)
    hub = request.getfixturevalue("online") if any(" push " in line for line in lines) else None
    servers = Servers()
    try:
        for line in lines:
            program, *words = shlex.split(line)
            if program != "curl":
                provide(words, inputs.with_name("made"))
            if program == "curl":
                servers.ask(words)
            elif words[0] == "exported/captioner.py":
                output = subprocess.check_output([sys.executable, "-I", *words], text=True)
                assert output == prints(capsys, "caption", "--model", "captioner", *words[1:])
            elif program == "python":
                run_script(words, monkeypatch)
            elif words[0] in ("serve", "app"):
                servers.start(words)
            else:
                if words == ["export", "--model", "captioner"]:
                    eager.use_eager_graphs(monkeypatch)  # the page exports it twice
                keep(words, capsys)
    finally:
        servers.stop()
    if hub is not None:
        assert "README.md" in hub.repositories[REPOSITORY].at("main")[1]


def run_script(words: list[str], patch: pytest.MonkeyPatch) -> None:
    """Runs a script of the repository, whose commands run in this process."""
    code = Path(words[0]).read_text(encoding="utf-8")
    options = [name for name in ("--jobs", "--seeds", "--students") if f'"{name}"' in code and name not in words]
    words += [word for name in options for word in (name, "1" if name == "--jobs" else "0")]
    patch.setattr(sys, "argv", words)
    for folder in ("benchmarks", "conversion"):
        patch.syspath_prepend(str(ROOT / folder))
    patch.setattr(importlib.import_module("training_runs"), "call", call_here)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code


def call_here(run: Path, *command: object) -> str:
    """Runs a command of a benchmark; returns its output."""
    run.parent.mkdir(parents=True, exist_ok=True)
    run.with_suffix(".cpu").write_text("1 train")
    with redirect_stdout(StringIO()) as output:
        assert main(smaller([*map(str, command)])) == 0
    return output.getvalue()


class Servers:
    """The server and the page of the commands, at most one of each at a time."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[subprocess.Popen, str]] = {}

    def start(self, words: list[str]) -> None:
        self.stop(words[0])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        words = [word for word in words if word not in ("--port", "8000")]
        program = [sys.executable, "-m", "hf_ngsan.cli", *smaller(words), "--port", port]
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        self.running[words[0]] = process, port
        while True:
            assert process.poll() is None, words
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/{'health' * (words[0] == 'serve')}") as answer:
                assert answer.status == 200
                return
            time.sleep(0.1)

    def ask(self, words: list[str]) -> None:
        words = ["curl", "--silent", *(word.replace("8000", self.running["serve"][1]) for word in words)]
        assert json.loads(subprocess.check_output(words))["captions"]

    def stop(self, *names: str) -> None:
        for name in {*names} & {*self.running} if names else [*self.running]:
            process, _ = self.running.pop(name)
            process.terminate()
            assert process.wait(60) in (0, -signal.SIGTERM)


def outputs_of(command: list[str]) -> list[str]:
    """The files and folders that a command writes."""
    options = parse(command)
    if command[0] == "train":
        return [str(load_training_config(options.config, options.overrides).output_dir)]
    names = ("output", "figure", "figures", "save_attention", "dry_run", "record")
    return [value for name in names if (value := getattr(options, name, None)) and value is not True]


def provide(command: list[str], made: Path) -> None:
    """Makes what a command uses if it is missing, as other pages do, in a folder for all pages."""
    is_command = command[0] != "cp" and not command[0].endswith(".py")
    written = [str(name) for name in outputs_of(command)] if is_command else []
    for name, commands in TABLES["other_pages"].items():
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


def keep(command: list[str], capsys: pytest.CaptureFixture) -> None:
    """Runs a command of a page in the current folder, and checks its output and files."""
    name = shlex.join(command)
    printed = prints(capsys, *smaller(command))
    lines = printed.splitlines()
    if command[0] in TABLES["lines"] and "--output" not in command:
        patterns = [pattern for words, pattern in TABLES["lines_with"].items() if words in name]
        for pattern in (TABLES["lines"][command[0]], *patterns):
            assert all(re.search(pattern, line) for line in lines), (name, printed)
        if command[0] != "search" and ("photo.jpg" in command or ("--limit" in command and "vatex" not in name)):
            number = re.search(r"(?:--limit |return_sequences=|--top-k )(\d+)", name)
            assert len({*lines}) == len(lines) == int(number[1] if number else 1), (name, printed)
    if command[0] == "evaluate":
        assert any({*scores} <= json.loads(printed).keys() for scores in TABLES["scores"]), (name, printed)
    places = outputs_of(command)
    patterns = [pattern for place in places for pattern in (place, f"{place}/*")]
    if command[0] == "train":
        patterns = [f"{places[0]}/{pattern}" for pattern in TABLES["files_of_a_run"]]
        history = Path(places[0], "history.jsonl").read_text()
        assert "--stage auto" not in name or ('"xe"' in history and '"scst"' in history), history
    for pattern in patterns:
        files = [*Path().glob(str(pattern))]
        assert all(file.is_dir() or file.stat().st_size for file in files), (name, pattern)
        assert files or Path(pattern).parent.is_file(), (name, pattern)
    if command[0] == "extract" and "--split" in command:
        images, split = command[command.index("--images") + 1], command[command.index("--split") + 1]
        assert len(load_data(f"features:{places[0]}", split)) == TABLES["numbers"][images.split("/")[-1]][split], name
