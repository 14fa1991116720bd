"""Models, training configs and photographs that come with the package or with others, found by name without torch."""

import difflib
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .files import write_text_atomically

PACKAGE = Path(__file__).parent.parent
CAPTIONER = "ngsan-flickr8k"
"""The default captioner of photographs."""
DUAL_ENCODER = "mhsan-flickr8k"
"""The default dual encoder of photographs and captions."""
CAPTIONERS_OF_SCENES = {
    "SAN": "san-scenes",
    "NG-SAN": "ngsan-scenes",
    "NG-SAN signed": "ngsan-signed-scenes",
}
"""Captioners of synthetic scenes: without geometry, with that of the paper, and with its sign."""
PHOTOGRAPHS = {
    "officer": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    "cheetah": ("gradio", "media_assets/images/cheetah1.jpg"),
    "running": ("gradio", "media_assets/images/cheetah.jpg"),
    "lion": ("gradio", "media_assets/images/lion.jpg"),
    "tower": ("gradio", "media_assets/images/tower.jpg"),
}
"""Photographs that other packages bring, by what they show: package and place; chosen before any of them was captioned.
The officer is Grace Hopper, by James S. Davis, 1984."""
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class ModelFolderError(ValueError):
    """A folder without a complete model; the message names it and what is missing."""


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns the folder `in_wheel` of the package, or else `in_checkout` of the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout


def installed_photographs() -> dict[str, Path]:
    """Returns the files of [`PHOTOGRAPHS`] that installed packages bring, without running code of these."""
    files = {}
    for name, (package, place) in PHOTOGRAPHS.items():
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            if Path(root, place).is_file():
                files[name] = Path(root, place)
    return files


def packaged_models() -> dict[str, Path]:
    """Returns the folders of the trained models by name."""
    folder = packaged_folder("checkpoints", "checkpoints")
    return {file.parent.name: file.parent for file in sorted(folder.glob("*/config.json"))}


def packaged_model(name: str) -> str:
    """Returns the folder of a packaged model, which every `from_pretrained` and `pipeline` takes.

    ```python
    pipeline("image-to-text", model=packaged_model("ngsan-flickr8k"))
    ```

    Raises:
        ValueError: no packaged model has this name; the message lists their names.
    """
    folders = packaged_models()
    if name not in folders:
        raise ValueError(f"There is no packaged model {name!r}; there are {', '.join(folders)}.")
    return str(folders[name])


def folder_of_packaged(name: Any) -> Any:
    """Returns the folder of a packaged model by name; returns another name, or an existing path, unchanged."""
    is_packaged = isinstance(name, str | os.PathLike) and not os.path.exists(name) and str(name) in packaged_models()
    return packaged_model(str(name)) if is_packaged else name


def find_model_folder(name: str | os.PathLike) -> str:
    """Returns the folder of a model: `name` itself, or `best`, else `last`, in the folder of a training run.

    The name of a packaged model becomes its folder; a name that may be one on the Hub is returned unchanged.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: a folder without a model.
    """
    folder = Path(os.path.expanduser(folder_of_packaged(name)))
    if not folder.exists():
        if HUB_NAME.fullmatch(str(name)) and not folder.parent.is_dir():
            return str(name)
        raise FileNotFoundError(f"There is no model folder {folder}.")
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file; give the folder of a model, such as {folder.parent}.")
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelFolderError(
        f"{folder} holds no model (config.json is missing); give a folder that save_pretrained or a training run wrote."
    )


def is_model(place: str) -> bool:
    """Returns whether a path or name is a model on this machine."""
    try:
        return os.path.isdir(find_model_folder(place))
    except (FileNotFoundError, ModelFolderError):
        return False


def packaged_configs() -> dict[str, Path]:
    """Returns the files of the packaged training configs by name, such as "ngsan/scenes"."""
    folder = packaged_folder("example_configs", "examples/configs")
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.glob("*/*.yaml"))}


def packaged_config(name: str) -> Path:
    """Returns the file of a packaged config by its name, with or without `.yaml`; an error names the most similar."""
    packaged, key = packaged_configs(), Path(name).as_posix().removesuffix(".yaml")
    if key in packaged:
        return packaged[key]
    close = difflib.get_close_matches(key, packaged, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "`hf-ngsan configs` lists the packaged ones."
    raise FileNotFoundError(f"There is no training config {name}; {hint}")


def find_config(name: str | os.PathLike, folder: Path = Path()) -> Path:
    """Returns the file of a training config: a file in the folder, or else a packaged config."""
    path = folder / os.path.expanduser(name)
    return path if path.exists() and not path.is_dir() else packaged_config(os.fspath(name))


def describe_config(file: Path) -> str:
    """Returns the first line of a config's opening comment; "" without one."""
    first_line = file.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def copy_config(name: str, output: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Copies a packaged training config, comments included, for a person to change.

    The copy names its `base` as a packaged config, so that it can be used in any folder. A file that exists is replaced
    only if `overwrite` is True.
    """
    file = packaged_config(name)
    if os.path.exists(output) and not (overwrite and os.path.isfile(output)):
        raise FileExistsError(f"{output} exists already; name another file, or replace a file with --overwrite.")
    names = {path: name for name, path in packaged_configs().items()}
    text = file.read_text(encoding="utf-8")
    for base in re.findall(r"^base: (\S+)", text, flags=re.M):
        text = text.replace(f"base: {base}", f"base: {names[find_config(base, file.parent)]}", 1)
    write_text_atomically(output, text)
