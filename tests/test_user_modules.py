"""Modules of the user's are found in the current folder, and say in a sentence why they cannot be imported."""

import sys

import pytest

from hf_ngsan.io import UserModuleError, import_user_module
from tests.tables import each_row


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text("NUMBER = 3\n")
    (tmp_path / "needs_more.py").write_text("import a_package_nobody_has\n")
    (tmp_path / "typo.py").write_text("def brevity(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in ("my_module", "needs_more", "typo"):
        sys.modules.pop(name, None)


def test_the_current_folder_comes_last(project):
    assert import_user_module("my_module", "a test").NUMBER == 3
    assert import_user_module("os.path", "a test").__name__ in ("posixpath", "ntpath")
    assert sys.path.count(str(project)) == 1 and sys.path[-1] == str(project)


@each_row(
    ("name", "fact"),
    [
        ("no_such.module", "no_such"),
        ("needs_more", "a_package_nobody_has"),
        ("typo", "SyntaxError"),
        ("./my_module.py", "./my_module.py"),
    ],
)
def test_modules_that_cannot_be_imported(project, name, fact):
    with pytest.raises(UserModuleError) as caught:
        import_user_module(name, "--import")
    message = str(caught.value)
    assert message.startswith("--import: ") and fact in message and "\n" not in message
