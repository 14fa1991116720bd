"""The command line: help, misuse, modules of users, and exit codes."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hf_ngsan.cli import COMMANDS, main, parse
from hf_ngsan.data.readers import READERS
from hf_ngsan.io import import_user_module
from tests.commands.running import heavy_imports, prints
from tests.tables import each_row


@each_row("command", [[], *([name] for name in COMMANDS)])
def test_help_shows_examples_and_names_the_command_that_lists_datasets(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    assert "examples:" in output
    assert f"  hf-ngsan {' '.join(command)}" in output
    assert "--import MODULE" in output and "--debug" in output
    assert sum(reader.usage in output for reader in READERS.values()) < 2
    assert ("hf-ngsan datasets" in output) == ("--data SPEC" in output or command in ([], ["datasets"], ["train"]))


@each_row(
    ("command", "code", "message"),
    [
        *[("models", 0, ""), ("train --help", 0, ""), ("train --config ngsan/scens", 2, "ngsan/scenes")],
        ("train --config ngsan/scenes data.limt=3", 2, "data.limit"),
        ("train --config ngsan/scenes trainin.epochs=3", 2, "training"),
    ],
)
def test_help_and_mistakes_in_keys_import_nothing_heavy(tmp_path, command, code, message):
    heavy, done = heavy_imports(tmp_path, *command.split())
    assert not heavy and done.returncode == code and message in done.stderr


@each_row(("setting", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch, capsys, setting, expected):
    monkeypatch.setenv("OMP_WAIT_POLICY", setting or "")
    if setting is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == expected


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"hf-ngsan {version('hf-ngsan')}\n"


@each_row(
    "arguments",
    [
        [],
        ["train"],
        ["train", "--config", "a.yaml", "a=1", "--resume", "-x=2"],
        ["evaluate", "--model", "m", "--data", "scenes", "--num-beams", "three"],
        ["caption", "a.jpg", "--num-beams", "0"],
        ["caption", "a.jpg", "--generate", "length_penalty={"],
    ],
)
def test_misuse_of_the_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


@each_row(
    ("words", "near"),
    [
        ("captoin photo.jpg", "caption"),
        ("attach_vision --model m", "attach-vision"),
        ("caption photo.jpg --genrate length_penalty=2", "--generate"),
        ("train --config a.yaml --num_processes=2", "--num-processes"),
        ("search photos.index --topk 3 dog", "--top-k"),
        ("--versoin", "--version"),
        *((words, "--help") for words in ("frobnicate", "caption --xyzzy photo.jpg", "caption -q p.jpg", "-q caption")),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one_or_with_help(words, near, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(words.split())
    assert exit_.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("hf-ngsan") and near in error and ("did you mean" in error) == (near != "--help")


def test_words_that_are_no_options():
    for words, name, value in (
        (
            ["caption", "p.jpg", "--generate", "a=-1", "b=1e-3", "c=true"],
            "generate",
            [("a", -1), ("b", 1e-3), ("c", True)],
        ),
        (["caption", "p.jpg", "--num-b", "3"], "num_beams", 3),
        (["caption", "p.jpg", "--text", "- a dog"], "text", "- a dog"),
        (["translate", "--model", "m", "--", "--no-option"], "texts", ["--no-option"]),
        (["search", "caption", "--top-k", "2", "train"], "index", ["caption", "train"]),
        (["caption", "a.jpg", "--num-beams", "2", "b.jpg"], "images", ["a.jpg", "b.jpg"]),
        (
            ["caption", "--json", "a.jpg", "--scores", "b.jpg", "--limit", "3", "c.jpg"],
            "images",
            ["a.jpg", "b.jpg", "c.jpg"],
        ),
        (["convert", "a.tsv", "--output", "o", "b.json"], "inputs", ["a.tsv", "b.json"]),
        (["train", "a=1", "--config", "c", "b=2", "--resume", "d=3"], "overrides", ["a=1", "b=2", "d=3"]),
        (["push", "a", "--private", "b/c"], "repo_id", "b/c"),
    ):
        assert getattr(parse(words), name) == value, words


def test_datasets_are_listed(capsys):
    listed = prints(capsys, "datasets")
    assert all(reader.usage in listed for reader in READERS.values())


def test_a_key_of_the_training_config_is_no_option(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--config", "ngsan/scenes", "--epochs", "3"])
    assert "key=value" in capsys.readouterr().err.splitlines()[-1]


def test_any_error_is_one_line_and_debug_shows_the_traceback(monkeypatch, capsys):
    for arguments in (["train", "--debug", "--config", "absent.yaml"], ["--debug", "train", "--config", "absent.yaml"]):
        with pytest.raises(FileNotFoundError):
            main(arguments)
    monkeypatch.setattr("hf_ngsan.commands.train.run", lambda options: {}["a bug"])
    assert main(["train", "--config", "absent.yaml"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "KeyError" in line and "a bug" in line
    with pytest.raises(KeyError):
        main(["train", "--config", "absent.yaml", "--debug"])


def test_ctrl_c_exits_quietly(monkeypatch, capsys):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_ngsan.commands.train.run", interrupt)
    assert main(["train", "--config", "absent.yaml"]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_had_enough_ends_the_command():
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "hf_ngsan.cli", "datasets"], **streams) as command:
        command.stdout.close()
        assert (command.stderr.read(), command.wait()) == (b"", 0)


def test_modules_that_cannot_be_imported(project):
    Path("needs_more.py").write_text("import a_package_nobody_has\n")
    Path("typo.py").write_text("def brevity(:\n")
    for name, fact in (
        ("no_such.module", "no_such"),
        ("needs_more", "a_package_nobody_has"),
        ("typo", "SyntaxError"),
        ("./does_nothing.py", "./does_nothing.py"),
    ):
        with pytest.raises(ValueError, match=f"^--import: .*{fact}"):
            import_user_module(name, "--import")


READER = """
from hf_ngsan.data import Reader, load_scenes, register_reader

def load(split):
    return load_scenes(split, size=9, validation=2, test=3)

register_reader(Reader(name="nine", loader=load, summary="nine scenes", columns=("captions",)))
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """The current folder, with modules of a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    Path("nine_scenes.py").write_text(READER)
    Path("does_nothing.py").write_text("")
    yield tmp_path
    READERS.pop("nine", None)
    for name in ("nine_scenes", "does_nothing"):
        sys.modules.pop(name, None)


@each_row("before", [True, False])
def test_modules_of_the_user_are_imported_first(project, capsys, before):
    imports = ["--import", "does_nothing", "--import=nine_scenes"]
    command = ["references", "--data", "nine", "--output", "references.json"]
    assert "3 images" in prints(capsys, *([*imports, *command] if before else [*command, *imports]))
    assert "does_nothing" in sys.modules
