"""README and the pages of docs/ are correct: their Python runs, and their commands exist."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from matplotlib.cbook import get_sample_data

from hf_ngsan.cli import parse
from hf_ngsan.io.packaged import find_config
from tests.tables import each_row

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/configs/*/README.md"))]
PAGES.append(ROOT / "SECURITY.md")
RUN_ELSEWHERE = {"docs/adding_a_model.md", "docs/adding_data.md", "docs/scale.md"}
"""Pages whose blocks another test runs, with the files that they need."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def lines_of(page: Path) -> list[list[str]]:
    """The words of each command in the shell blocks of a page, without comments."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def commands_of(page: Path) -> list[list[str]]:
    """The calls of `hf-ngsan` in the shell blocks of a page."""
    return [words[1:] for words in lines_of(page) if words[0] == "hf-ngsan"]


@pytest.fixture
def photograph_folder(tmp_path, monkeypatch):
    """The current folder, with a photograph."""
    shutil.copy(get_sample_data("grace_hopper.jpg", asfileobj=False), tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)


WITH_PYTHON = [page for page in PAGES if name_of(page) not in RUN_ELSEWHERE and blocks(page, "python")]


@pytest.mark.slow
@pytest.mark.usefixtures("photograph_folder")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_from_top_to_bottom_and_prints_what_it_says(page, capsys):
    names, python = {}, blocks(page, "python")
    for block in python:
        exec(compile(block, str(page), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) >= "".join(python).count("print(")
    assert not {"", "None", "[]", "{}"} & {line.strip() for line in printed}
    if page.name == "README.md" and page.parent == ROOT:
        caption, *beams = re.findall(r"'generated_text': '([^']+)'", "".join(printed))
        assert {"man", "woman", "person", "boy", "girl", "people"} & {*caption.split()} and len({*beams}) == 3


@each_row("page", [page for page in PAGES if commands_of(page) and page.name != "adding_data.md"])
def test_the_commands_of_a_page_exist(page):
    for command in commands_of(page):
        options = parse(command)
        assert not hasattr(options, "config") or name_of(page) in RUN_ELSEWHERE or find_config(options.config)


def test_readme_is_short_and_leads_to_every_page():
    readme, index = PAGES[0].read_text(encoding="utf-8"), (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 110
    assert blocks(PAGES[0], "python") and len(commands_of(PAGES[0])) >= 5
    assert "](docs/README.md)" in readme and len(blocks(ROOT / "docs" / "captioning.md", "python")) >= 3
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md", "index.md"}  # start page of the site
    assert pages == set(re.findall(r"^- \[[^]]+\]\((\w+\.md)\): ", index, flags=re.MULTILINE))


def headings_of(page: Path) -> set[str]:
    """The names by which links refer to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@each_row("page", PAGES)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", text):
        if not target.startswith(("https://", "http://")):
            assert (page.parent / target).exists(), target
            assert not heading or heading in headings_of(page.parent / target if target else page), heading
    for place in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (ROOT / place).exists(), place
    for script in re.findall(r"python ((?:benchmarks|conversion|docs|examples)/\w+\.py)", text):
        assert (ROOT / script).is_file(), script
