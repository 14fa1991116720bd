"""The pages of the site that follow from the package: its API, its commands and the keys of training configs."""

import io
import json
import os
import re
import textwrap
from contextlib import redirect_stdout, suppress
from dataclasses import Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from hf_ngsan.cli import GROUPS, parse
from hf_ngsan.registry import MODEL_TYPES
from hf_ngsan.tasks.registry import TASKS, task_class

PACKAGES = {
    "hf_ngsan": "Models, processors and configurations",
    "hf_ngsan.loading": "Loading and saving",
    "hf_ngsan.data": "Data",
    "hf_ngsan.metrics": "Metrics",
    "hf_ngsan.tasks": "Tasks",
    "hf_ngsan.training": "Training",
    "hf_ngsan.extraction": "Extraction",
    "hf_ngsan.retrieval": "Search",
    "hf_ngsan.visualization": "Figures",
    "hf_ngsan.guests": "Models of transformers",
    "hf_ngsan.exporting": "Export",
    "hf_ngsan.serving": "Serving",
}
"""Packages with public names, with the titles of their pages."""
ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = (
    "C*.md",
    "SECURITY.md",
    "checkpoints/*/README.md",
    "examples/configs/*/README.md",
    "examples/space/README.md",
)
"""Pages of the repository outside `docs` that the site has as well."""


def write_reference(folder: Path) -> None:
    """Writes the pages of the reference into a folder of the site's sources."""
    folder.mkdir(exist_ok=True)
    for package, title in PACKAGES.items():
        write(folder / f"{package.replace('.', '_')}.rst", api_page(package, title))
    write(folder / "commands.md", commands_page())
    write(folder / "training_configs.md", training_configs_page())
    write(folder / "citations.md", citations_page())


def write(file: Path, text: str) -> None:
    """Writes a page if it has changed, so that Sphinx builds only such pages again."""
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def api_page(package: str, title: str) -> str:
    lines = [title, "=" * len(title), "", f"``{package}``", ""]
    for name in public_names(package):
        value = getattr(import_module(package), name)
        if isinstance(value, type):
            lines += [f".. autoclass:: {package}.{name}", "   :members:", ""]
        elif callable(value):
            lines += [f".. autofunction:: {package}.{name}", ""]
        elif isinstance(value, ModuleType):
            lines += [f".. automodule:: {value.__name__}", "   :members:", ""]
        else:
            lines += [f".. data:: {package}.{name}", "", f"   ``{value}``", ""]
    return "\n".join(lines)


def public_names(package: str) -> list[str]:
    """Returns the names that a package declares, or the classes and functions in it."""
    module = import_module(package)
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith(package)]
    return getattr(module, "__all__", sorted(name for name in defined if not name.startswith("_")))


def commands_page() -> str:
    parts = ["# Command line", "", "`hf-ngsan COMMAND --help` prints the same.", ""]
    for group, commands in GROUPS.items():
        parts += [f"## {group.capitalize()}", ""]
        for command in commands:
            parts += [f"### hf-ngsan {command}", "", "```text", help_of(command).rstrip(), "```", ""]
    return "\n".join(parts)


def training_configs_page() -> str:
    parts = ["# Keys of training configs", "", "By task; `hf-ngsan configs` lists the packaged training configs.", ""]
    for task in TASKS:
        parts += [f"## {task.replace('_', ' ').capitalize()}", ""]
        config = task_class(task).config_class
        for section in fields(config):
            settings = get_type_hints(config)[section.name]
            if is_dataclass(settings):
                parts += [f"### {section.name}", "", "| key | default | meaning |", "| --- | --- | --- |"]
                defaults = getattr(config(), section.name)
                keys = [entry for entry in fields(settings) if "help" in entry.metadata]
                parts += [key_row(entry, getattr(defaults, entry.name)) for entry in keys]
                parts += [""]
    return "\n".join(parts)


def citations_page() -> str:
    papers = {entry.paper: None for entry in MODEL_TYPES.values() if entry.paper}
    parts = ["# Citations", "", "The papers of the models; `CITATION.cff` cites the package.", ""]
    for paper in papers:
        parts += [f"{paper}:", "", "```bibtex", paper.citation, "```", ""]
    return "\n".join(parts)


def key_row(entry: Field, default: object) -> str:
    default = json.dumps(default).strip('"')
    meaning = str(entry.metadata["help"]).replace("|", "\\|")
    return f"| `{entry.name}` | `{default}` | {meaning} |"


def help_of(command: str) -> str:
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        parse([command, "--help"])
    return printed.getvalue()


def as_restructured_text(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Turns the Markdown of a docstring, in place, into what Sphinx reads: code, and names of other objects."""
    parts = re.split(r"^( *)```(\w*)\n(.*?)^ *```$", "\n".join(lines), flags=re.MULTILINE | re.DOTALL)
    page = [in_literals(parts[0])]
    for indent, language, code, text in zip(*(parts[place::4] for place in (1, 2, 3, 4)), strict=True):
        page += [f"{indent}.. code-block:: {language or 'text'}", "", textwrap.indent(code, "    "), in_literals(text)]
    lines[:] = "\n".join(page).split("\n")


def in_literals(text: str) -> str:
    """Returns Markdown without code blocks with its code as literals of reStructuredText."""
    text = re.sub(r"\[`~?([^`]*)`\](?!\()", lambda match: f"`{match[1].split('.')[-1]}`", text)
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", text)
    return re.sub(r"\\ (?!\w)", "", text)  # a literal must end before a character that is not a letter


def copy_repository_pages(folder: Path) -> None:
    """Copies the Markdown of the repository that the pages of the site lead to."""
    for page in (page for pattern in REPOSITORY for page in ROOT.glob(pattern)):
        target = folder / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        write(target, text)


def link_within_the_site(app: Any, name: str, content: list[str]) -> None:
    """Points the links of a page, in place, to pages of the site; a link to another file becomes its text."""
    source = Path(app.srcdir, f"{name}.md")
    copies = Path(app.srcdir, "repository")
    original = ROOT / source.relative_to(copies) if source.is_relative_to(copies) else source

    def linked(match: re.Match) -> str:
        bang, text, target, anchor = match.groups()
        file = Path(os.path.normpath(original.parent / target))
        if file.name == "README.md" and file.parent in (ROOT, ROOT / "docs"):
            place = Path(app.srcdir, "index.md")
        elif file.is_relative_to(app.srcdir):
            place = file
        elif (copies / file.relative_to(ROOT)).is_file():
            place = copies / file.relative_to(ROOT)
        else:
            return text
        return f"{bang}[{text}]({os.path.relpath(place, source.parent)}{anchor or ''})"

    content[0] = re.sub(r"(!?)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)", linked, content[0])
