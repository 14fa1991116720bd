"""Versions of the packages that features depend on."""

import importlib.metadata

PACKAGES = ("hf-ngsan", "torch", "transformers", "pillow", "numpy", "datasets")


def package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
            continue
    return versions
