"""Data folders of the package: inside the package in a wheel, beside it in a checkout of the repository."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns the folder `in_wheel` of the package, or else `in_checkout` of the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout
