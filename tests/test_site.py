"""The site of `docs/`: its pages of reference, and docstrings and links as Sphinx reads them; `make docs` builds it."""

import inspect
import os
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from hf_ngsan.cli import COMMANDS

ROOT = Path(__file__).parents[1]


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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built from the sources."""
    pytest.importorskip("myst_parser", reason='Sphinx is not installed; pip install "hf-ngsan[docs]"')
    root = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", ROOT / "docs", root / "built"]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return root / "built"


@pytest.mark.slow
def test_every_public_name_is_in_the_inventory_and_has_a_docstring(site, reference):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    for package in reference.PACKAGES:
        module = import_module(package)
        for name in reference.public_names(package):
            value = getattr(module, name)
            where = value.__name__ if isinstance(value, ModuleType) else f"{package}.{name}"
            assert where in entries, where
            assert inspect.getdoc(value) or not callable(value), where


@pytest.mark.slow
def test_every_page_of_docs_is_on_the_site(site):
    for page in {*ROOT.glob("docs/*.md")} - {ROOT / "docs" / "README.md"}:
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("'", "’")
        # Sphinx replaces a page that has the name of its search form or its general index
        assert f"<h1>{title}<a" in (site / f"{page.stem}.html").read_text(encoding="utf-8"), page.name
