"""The wheel: what a user without a checkout installs."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from matplotlib.cbook import get_sample_data
from transformers import pipeline as load_pipeline

from hf_ngsan import packaged_model, save_for_hub
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading import load_captioner
from tests.loading.test_hub import CODE, CODE_OF_VISION, result_of

ROOT = Path(__file__).parents[1]
MAX_BYTES = 28_000_000
IGNORED = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of the wheel, built in a copy of its sources."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    for name in ("hf_ngsan", "examples", "checkpoints"):
        shutil.copytree(ROOT / name, source / name, ignore=IGNORED)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    assert wheel.stat().st_size < MAX_BYTES
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def files_of(folder: Path, pattern: str) -> set[str]:
    files = [path for path in folder.rglob(pattern) if path.is_file()]
    return {path.relative_to(folder).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_the_wheel_has_the_whole_package_and_nothing_else(installed):
    package = installed / "hf_ngsan"
    code = {name for name in files_of(package, "*.py") if not name.startswith("checkpoints/")}
    assert code == files_of(ROOT / "hf_ngsan", "*.py")
    for pattern in ("*.jinja", "*.css", "*.js"):
        assert files_of(package, pattern) == files_of(ROOT / "hf_ngsan", pattern) != set()
    assert (package / "py.typed").is_file()
    assert files_of(package, "*.pyi") == files_of(ROOT / "hf_ngsan", "*.pyi")
    assert {path.name.split("-")[0] for path in installed.iterdir()} == {"hf_ngsan"}
    for pattern in ("*.yaml", "*.md"):
        examples = files_of(ROOT / "examples" / "configs", pattern)
        assert examples and files_of(installed / "hf_ngsan" / "example_configs", pattern) == examples
    checkpoints = files_of(ROOT / "checkpoints", "*")
    actual = {name for name in files_of(installed / "hf_ngsan" / "checkpoints", "*") if not name.endswith(".py")}
    assert checkpoints and actual == {name for name in checkpoints if not name.endswith(".py")}


@pytest.mark.slow
def test_the_checkpoint_in_the_wheel_has_the_code_that_saving_it_writes(installed, tmp_path):
    save_for_hub(*load_captioner(CAPTIONER), tmp_path)
    packaged = installed / "hf_ngsan" / "checkpoints" / CAPTIONER
    expected = {name: (tmp_path / name).read_bytes() for name in files_of(tmp_path, "*.py")}
    assert {name: (packaged / name).read_bytes() for name in files_of(packaged, "*.py")} == expected
    assert expected.keys() > CODE | CODE_OF_VISION


WITHOUT_THE_PACKAGE = """
import json, sys
sys.modules["hf_ngsan"] = None
from transformers import pipeline

[caption] = pipeline("image-to-text", model={folder!r}, trust_remote_code=True)({photograph!r})
names = [name.split(".") for name in sys.modules if name.startswith("transformers_modules.")]
print(json.dumps([caption, sorted(name[-1] for name in names if len(name) > 3)]))
"""


@pytest.mark.slow
def test_the_checkpoint_in_the_wheel_needs_transformers_only_and_all_of_its_code(installed, tmp_path):
    folder = installed / "hf_ngsan" / "checkpoints" / CAPTIONER
    photograph = get_sample_data("grace_hopper.jpg", asfileobj=False)
    code = WITHOUT_THE_PACKAGE.format(folder=str(folder), photograph=str(photograph))
    caption, modules = result_of(code, tmp_path)
    assert caption == load_pipeline("image-to-text", model=packaged_model(CAPTIONER))(photograph)[0]
    assert {f"{name}.py" for name in modules} | {"parts.py"} == files_of(folder, "*.py")


@pytest.mark.slow
def test_the_wheel_names_the_licences_of_the_code_and_of_the_weights(installed):
    [information] = installed.glob("*.dist-info")
    metadata = (information / "METADATA").read_text()
    assert "License-Expression: Apache-2.0 AND LicenseRef-non-commercial-research-and-education\n" in metadata
    licences = {"LICENSE", *(f"checkpoints/{file}" for file in files_of(ROOT / "checkpoints", "LICENSE"))}
    assert len(licences) > 1 and files_of(information / "licenses", "*") == licences
