"""Folders of data that come with the package: inside it in a wheel, beside it in a checkout."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns where a folder is: `in_wheel` within the package, or `in_checkout` within the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout
