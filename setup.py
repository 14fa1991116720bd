"""Lets the wheel carry the training configs of examples/configs; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

CONFIGS = "hf_ngsan.example_configs"

setup(
    packages=[*find_packages(include=["hf_ngsan*"]), CONFIGS],
    package_dir={CONFIGS: "examples/configs"},
    package_data={"hf_ngsan": ["py.typed"], CONFIGS: ["*/*.yaml", "*/README.md"]},
)
