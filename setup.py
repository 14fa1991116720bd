"""Lets the wheel carry the training configs and the trained models; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

CONFIGS, MODELS = "hf_ngsan.example_configs", "hf_ngsan.checkpoints"

setup(
    packages=[*find_packages(include=["hf_ngsan*"]), CONFIGS, MODELS],
    package_dir={CONFIGS: "examples/configs", MODELS: "checkpoints"},
    package_data={
        "hf_ngsan": ["py.typed"],
        "hf_ngsan.sharing": ["*.jinja"],
        "hf_ngsan.space": ["*.css", "*.js"],
        CONFIGS: ["*/*.yaml", "*/README.md"],
        MODELS: ["*/*", "*/.eval_results/*"],
    },
)
