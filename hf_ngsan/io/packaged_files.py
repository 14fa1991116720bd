"""Data folders of the package, in a wheel or a checkout, and photographs that other packages bring."""

from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns the folder `in_wheel` of the package, or else `in_checkout` of the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout


PHOTOGRAPHS = {
    "officer": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    "cheetah": ("gradio", "media_assets/images/cheetah1.jpg"),
    "running": ("gradio", "media_assets/images/cheetah.jpg"),
    "lion": ("gradio", "media_assets/images/lion.jpg"),
    "tower": ("gradio", "media_assets/images/tower.jpg"),
}
"""Photographs that other packages bring, by what they show: package and place; chosen before any of them was captioned.
The officer is Grace Hopper, by James S. Davis, 1984."""


def installed_photographs() -> dict[str, Path]:
    """Returns the files of [`PHOTOGRAPHS`] that installed packages bring, without running code of these."""
    found = {}
    for name, (package, place) in PHOTOGRAPHS.items():
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            if Path(root, place).is_file():
                found[name] = Path(root, place)
    return found
