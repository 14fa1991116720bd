"""Training configs that come with the package: found by name, described, and copied."""

import difflib
import os
import re
from pathlib import Path

from .files import write_text_atomically
from .packaged_files import packaged_folder


def packaged_configs() -> dict[str, Path]:
    """Returns the files of the packaged training configs by name, such as "ngsan/scenes"."""
    folder = packaged_folder("example_configs", "examples/configs")
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.glob("*/*.yaml"))}


def packaged_config(name: str) -> Path:
    """Returns the file of a packaged config by its name, with or without `.yaml`.

    Raises:
        FileNotFoundError: no packaged config has this name; the message suggests the most similar one.
    """
    packaged, key = packaged_configs(), Path(name).as_posix().removesuffix(".yaml")
    if key in packaged:
        return packaged[key]
    close = difflib.get_close_matches(key, packaged, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "`hf-ngsan configs` lists the packaged ones."
    raise FileNotFoundError(f"There is no training config {name}; {hint}")


def find_config(name: str | os.PathLike, folder: Path = Path()) -> Path:
    """Returns the file of a training config: a file in the folder, or else a packaged config.

    Raises:
        FileNotFoundError: neither exists.
        IsADirectoryError: the name is a folder and no packaged config.
    """
    path = folder / os.path.expanduser(name)
    if path.exists() and not path.is_dir():
        return path
    try:
        return packaged_config(os.fspath(name))
    except FileNotFoundError:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; a training config is a YAML file.") from None
        raise


def describe_config(file: Path) -> str:
    """Returns the first line of a config's opening comment; "" without one."""
    first_line = file.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def copy_config(name: str, output: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Copies a packaged training config, comments included, for a person to change.

    The copy names its `base` as a packaged config, so that it can be used in any folder.

    Args:
        name: of the packaged config.
        output: the file to write; missing parent folders are made.
        overwrite: whether to replace a file that exists.

    Raises:
        FileNotFoundError: there is no such config.
        FileExistsError: `output` exists and `overwrite` is False.
    """
    file = packaged_config(name)
    if os.path.isdir(output):
        raise IsADirectoryError(f"{output} is a folder; name a file, such as {Path(output, file.name)}.")
    if os.path.isfile(output) and not overwrite:
        raise FileExistsError(f"{output} exists already; name another file, or replace it with --overwrite.")
    names = {path: name for name, path in packaged_configs().items()}

    def by_name(base: re.Match) -> str:
        return f"base: {names[find_config(base[1], file.parent)]}"

    write_text_atomically(output, re.sub(r"^base: (\S+)", by_name, file.read_text(encoding="utf-8"), flags=re.M))
