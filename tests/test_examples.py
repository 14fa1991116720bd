"""The examples in docstrings give what they show, and those of modules are blocks of code."""

import ast
import doctest
import re
import textwrap
from importlib import import_module
from types import ModuleType

from tests.tables import each_row

from .test_layers import FILES, module_name

MODULES = [module_name(file) for file, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8")]


class FencedExamples(doctest.DocTestParser):
    """Reads examples in fenced blocks of Markdown, whose closing fence is no output."""

    def parse(self, string: str, name: str = "<string>") -> list:
        return super().parse(re.sub(r"^( *)```$", r"\1", string, flags=re.MULTILINE), name)


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(parser=FencedExamples()).find(module) if test.examples]


def test_all_examples_are_found():
    assert len(MODULES) > 10


@each_row("name", MODULES)
def test_examples_of(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(import_module(name))
    assert examples
    for example in examples:
        assert doctest.DocTestRunner().run(example).failed == 0


def is_code(paragraph: str) -> bool:
    """Returns whether a paragraph is Python that does something, or an indented table."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree = compile(textwrap.dedent(paragraph), "example", "exec", flags)
    except SyntaxError:
        return paragraph.startswith("    ")
    return any(isinstance(node, ast.Call | ast.Assign | ast.For | ast.With) for node in ast.walk(tree))


def test_examples_in_docstrings_of_modules_are_blocks_of_code():
    for path in FILES.values():
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert not [part for part in prose.split("\n\n") if is_code(part.strip("\n"))], path
