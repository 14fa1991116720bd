"""The layers of the package: allowed imports, and what an import may do."""

import ast
import functools
import graphlib
import re
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_imports, get_relative_imports

import hf_ngsan
from tests.loading.test_hub import result_of
from tests.tables import each_row

ROOT = Path(hf_ngsan.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
MODEL_FILES = [name for name in FILES if name.startswith("models/")]
PILLARS = {"models", "data", "metrics", "retrieval", "visualization"}
LAYERS = [
    *("io", "languages", "registry", "guests", "exporting", "loading", "extraction", "training", "tasks"),
    *("scaling", "reproduction", "sharing", "serving", "space", "commands", "demo", "cli"),
]
"""From the ground up: each may import the pillars and those before it; `models`, which travels alone, none."""
NEEDS_THE_PACKAGE = LAYERS[LAYERS.index("extraction") :]
"""Layers that may import `hf_ngsan` itself, which registers the models."""
MODELS_MAY_IMPORT = {
    *["torch", "transformers", "numpy", "PIL", "huggingface_hub", "safetensors"],
    *sys.stdlib_module_names,
}


def module_name(file: str) -> str:
    """`data/scenes/__init__.py` is `hf_ngsan.data.scenes`."""
    parts = Path("hf_ngsan", file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file) for file in FILES}


def type_checking_blocks(tree: ast.AST) -> set[ast.AST]:
    """Statements that only a type checker executes."""
    blocks = [n.body for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {inner for body in blocks for statement in body for inner in ast.walk(statement)}


@functools.cache
def imported_modules(file: str) -> set[str]:
    """Full names of everything that a file imports, at its top or in its functions."""
    tree = ast.parse(FILES[file].read_text())
    package = module_name(file).split(".") if file.endswith("__init__.py") else module_name(file).split(".")[:-1]
    skipped, actual = type_checking_blocks(tree), set()
    for node in set(ast.walk(tree)) - skipped:
        if isinstance(node, ast.Import):
            actual |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from .folder import file` imports the file, `from .file import name` the file named first.
            actual |= {f"{source}.{a.name}" if f"{source}.{a.name}" in MODULES else source for a in node.names}
    return actual


def imported_layers(file: str) -> set[str]:
    """Layers of this package that a file imports; "" is the package itself."""
    imported = {name for name in imported_modules(file) if name.split(".")[0] == "hf_ngsan"}
    return {name.split(".")[1] if "." in name else "" for name in imported}


@each_row("file", FILES)
def test_a_layer_imports_only_lower_layers(file):
    layer = Path(file).with_suffix("").parts[0]
    if layer == "__init__":
        allowed = {"registry", "io"}
    elif layer == "models":
        allowed = {layer}
    elif layer in PILLARS:
        allowed = {layer, "io", "languages"}
    elif layer in ("io", "languages"):
        allowed = {layer}
    else:
        assert layer in LAYERS, f"{layer} is a new layer: add it to LAYERS"
        allowed = PILLARS | set(LAYERS[: LAYERS.index(layer) + 1]) | ({""} if layer in NEEDS_THE_PACKAGE else set())
    assert imported_layers(file) <= allowed


def test_there_is_no_cycle():
    imports = {
        module_name(file): {name for name in imported_modules(file) if name in MODULES and name != "hf_ngsan"}
        for file in FILES
    }
    for module, names in imports.items():
        names.discard(module)
    graphlib.TopologicalSorter(imports).prepare()


@each_row("file", MODEL_FILES)
def test_models_can_travel_with_a_checkpoint(file):
    assert file.count("/") == 1, "the folder is flat"
    tree = ast.parse(FILES[file].read_text())
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert all(node.level == 1 and node.module and "." not in node.module for node in relative)
    siblings = {node.module for node in relative}
    assert all((ROOT / "models" / f"{name}.py").is_file() for name in siblings)
    assert set(get_relative_imports(FILES[file])) == siblings, "transformers takes a line of text for an import"
    assert {name.split(".")[0] for name in get_imports(FILES[file])} <= MODELS_MAY_IMPORT
    absolute = {name.split(".")[0] for name in imported_modules(file)} - {"hf_ngsan", "av"}  # optional in videos.py
    assert absolute <= MODELS_MAY_IMPORT
    assert "__file__" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_no_task_imports_another():
    """A task is a file with its name; further files of the task begin with this name."""
    names = ("captioning", "retrieval", "question_answering", "translation", "language_modeling")

    def task_of(module: str) -> str | None:
        return next((name for name in names if module.startswith(f"hf_ngsan.tasks.{name}")), None)

    for file in FILES:
        if file.startswith("tasks/"):
            assert {task_of(name) for name in imported_modules(file)} <= {task_of(module_name(file)), None}, file
    assert {f"tasks/{name}.py" for name in names} <= set(FILES)


def test_functions_fit_a_screen():
    """At most 60 lines of code, and ten arguments besides keyword options; `forward` has those of transformers."""
    for file, path in FILES.items():
        functions = [
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for node in functions:
            where = f"{file}: {node.name}"
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            documented = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
            assert node.end_lineno - node.lineno + 1 - documented <= 60, where
            assert len(node.args.posonlyargs) + len(node.args.args) <= 11 or node.name == "forward", where


def test_strangers_files_are_not_unpickled():
    """The safe defaults of torch and numpy are not changed; ruff checks for pickles."""
    for file, path in FILES.items():
        assert not re.search(r"weights_only=False|allow_pickle=True", path.read_text()), file


@pytest.mark.slow
def test_no_import_opens_a_connection_or_starts_a_process(tmp_path):
    code = """
import importlib, json, pkgutil, socket, subprocess, sys

import torch, transformers, datasets, accelerate  # what these do at import is theirs

def refuse(*arguments, **options):
    raise AssertionError(f"an import reached for {arguments}")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
subprocess.Popen.__init__ = refuse
import hf_ngsan
names = [module.name for module in pkgutil.walk_packages(hf_ngsan.__path__, "hf_ngsan.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps([len(names), "matplotlib" in sys.modules]))
"""
    count, has_matplotlib = result_of(code, tmp_path)
    assert count > 20
    assert not has_matplotlib
