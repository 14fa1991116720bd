"""Lets the wheel carry the training configs and the trained models, with their code; the rest is in pyproject.toml."""

import json
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

CONFIGS, MODELS = "hf_ngsan.example_configs", "hf_ngsan.checkpoints"
SOURCE, CODE = Path("checkpoints"), Path("hf_ngsan", "models")


class BuildWithCode(build_py):
    """Copies to each trained model the code that it refers to, as saving it does: transformers alone can then run it.

    The repository has that code once, as the package's own; a folder there has only `parts.py`, which is the model's.
    """

    def run(self) -> None:
        built = Path(self.build_lib, *MODELS.split("."))
        if not self.editable_mode:
            shutil.rmtree(built, ignore_errors=True)  # that of an earlier build may have code that is no longer needed
        super().run()
        for config in built.glob("*/config.json"):
            for name in code_of(config, SOURCE / config.parent.name):
                shutil.copyfile(CODE / name, config.parent / name)


def code_of(config: Path, folder: Path) -> set[str]:
    """Returns the names of the package's files that a model refers to in its config.json, and that these import."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    pipelines = settings.get("custom_pipelines", {}).values()
    references = [*settings["auto_map"].values(), *(one["impl"] for one in pipelines)]
    found: set[str] = set()
    names = {f"{reference.split('.')[0]}.py" for reference in references}
    while names:
        found |= names
        files = [folder / name if (folder / name).exists() else CODE / name for name in names]
        imports = [re.findall(r"^\s*from \.(\w+) import", file.read_text(encoding="utf-8"), re.M) for file in files]
        names = {f"{name}.py" for one in imports for name in one} - found
    return {name for name in found if not (folder / name).exists()}


setup(
    packages=[*find_packages(include=["hf_ngsan*"]), CONFIGS, MODELS],
    package_dir={CONFIGS: "examples/configs", MODELS: "checkpoints"},
    cmdclass={"build_py": BuildWithCode},
    package_data={
        "": ["*.pyi"],  # the names that a package imports when they are used
        "hf_ngsan": ["py.typed"],
        "hf_ngsan.demo": ["*.jinja"],
        "hf_ngsan.reproduction": ["*.yaml"],
        "hf_ngsan.sharing": ["*.jinja"],
        "hf_ngsan.space": ["*.css", "*.jpg", "*.js"],
        CONFIGS: ["*/*.yaml", "*/README.md"],
        MODELS: ["*/*", "*/onnx/*"],
    },
)
