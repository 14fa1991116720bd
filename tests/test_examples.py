"""Examples in docstrings print what they show; those of modules are blocks of code."""

import doctest
import re
from importlib import import_module
from types import ModuleType

from tests.tables import each_row

from .test_layers import FILES, module_name

MODULES = [module_name(file) for file, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8")]


class FencedExamples(doctest.DocTestParser):
    """Reads examples in fenced blocks of Markdown, whose closing fence is not part of the output."""

    def parse(self, string: str, name: str = "<string>") -> list:
        return super().parse(re.sub(r"^( *)```$", r"\1", string, flags=re.MULTILINE), name)


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(parser=FencedExamples()).find(module) if test.examples]


@each_row("name", MODULES)
def test_examples_of(name, small_meteor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = examples_of(import_module(name))
    assert examples
    for example in examples:
        assert doctest.DocTestRunner().run(example).failed == 0
