"""The site of `docs/`: its pages of reference, and docstrings and links as Sphinx reads them; `make docs` builds it."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hf_ngsan.cli import COMMANDS

ROOT = Path(__file__).parents[1]


def test_services_that_build_the_site_find_their_commands_and_files():
    pages = yaml.safe_load((ROOT / ".github" / "workflows" / "docs.yml").read_text())
    commands = [step["run"] for job in pages["jobs"].values() for step in job["steps"] if "run" in step]
    makefile = (ROOT / "Makefile").read_text()
    assert commands == ["make docs"] and "\ndocs: " in makefile
    uploaded = next(step["with"]["path"] for step in pages["jobs"]["build"]["steps"] if "path" in step.get("with", {}))
    assert f" docs {uploaded}\n" in makefile
    read_the_docs = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / read_the_docs["sphinx"]["configuration"]).is_file()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*read_the_docs["python"]["install"][0]["extra_requirements"]} <= extras.keys()


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield import_module("reference")
    sys.modules.pop("reference", None)


def test_every_public_name_and_command_has_an_entry(reference, tmp_path):
    reference.write_reference(tmp_path)
    pages = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    for package in reference.PACKAGES:
        module, page = import_module(package), pages[f"{package.replace('.', '_')}.rst"]
        for name in getattr(module, "__all__", ()):
            assert f":: {package}.{name}\n" in page or not callable(getattr(module, name)), name
    assert all(f"### hf-ngsan {command}\n" in pages["commands.md"] for command in COMMANDS)
    assert "| `captions_per_image` | `5` |" in pages["training_configs.md"]
    before = {page: page.stat().st_mtime_ns for page in tmp_path.iterdir()}
    reference.write_reference(tmp_path)
    assert before == {page: page.stat().st_mtime_ns for page in tmp_path.iterdir()}, "Sphinx would build all again"


def test_markdown_of_docstrings_is_read_by_sphinx(reference):
    lines = [
        "See [`~models.x.Y`]; `a` and `b c",
        "d`s.",
        "",
        "    ```python",
        "    >>> f(`x`)",
        "    ```",
        "",
        "End `z`.",
    ]
    reference.as_restructured_text(None, "", "", None, None, lines)
    assert [line for line in lines if line] == [
        "See ``Y``; ``a`` and ``b c",
        "d``\\ s.",
        "    .. code-block:: python",
        "        >>> f(`x`)",
        "End ``z``.",
    ]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("captioning", "[a](results.md#b)", "[a](results.md#b)"),
        ("captioning", "[a](../SECURITY.md)", "[a](repository/SECURITY.md)"),
        ("captioning", "[a](../checkpoints/x/LICENSE)", "a"),
        ("captioning", "[a](README.md)", "[a](index.md)"),
        ("captioning", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("captioning", "![a](captions.jpg)", "![a](captions.jpg)"),
        ("repository/CONTRIBUTING", "[a](docs/training.md)", "[a](../training.md)"),
        ("repository/examples/x/README", "[a](../../SECURITY.md#b)", "[a](../../SECURITY.md#b)"),
    ],
)
def test_links_lead_to_pages_of_the_site(reference, tmp_path, monkeypatch, page, link, expected):
    (tmp_path / "docs" / "repository").mkdir(parents=True)
    (tmp_path / "docs" / "repository" / "SECURITY.md").touch()
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    content = [link]
    reference.link_within_the_site(SimpleNamespace(srcdir=str(tmp_path / "docs")), page, content)
    assert content == [expected]
