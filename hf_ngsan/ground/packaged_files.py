"""Folders that are not code and come with the package: in a wheel inside it, in a checkout beside it."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns where a folder is: `in_wheel` within the package, or `in_checkout` within the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout
