"""Packaged models, training configs and photographs by name, without torch; and the sources of weights.

Every derived model keeps the sources of its weights and their licences, in its configuration and a file `LICENSE`.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .files import read_json_or_none, write_text_atomically
from .messages import did_you_mean

PACKAGE = Path(__file__).parent.parent
CAPTIONER = "ngsan-photos"
"""The default captioner of photographs."""
DUAL_ENCODER = "mhsan-photos"
"""The default dual encoder of photographs and captions."""
FORMER_NAMES = {"ngsan-flickr8k": CAPTIONER, "mhsan-flickr8k": DUAL_ENCODER}
"""Former names of the packaged models of photographs; they still work."""
CAPTIONERS_OF_SCENES = {
    "SAN": "san-scenes",
    "NG-SAN": "ngsan-scenes",
    "NG-SAN signed": "ngsan-signed-scenes",
}
"""Captioners of synthetic scenes: without geometry, with the paper's geometry, and with signed geometry."""
PHOTOGRAPHS = {
    "motorcycle": ("hf_ngsan", "space/motorcycle.jpg"),
    "officer": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    "cheetah": ("gradio", "media_assets/images/cheetah1.jpg"),
    "running": ("gradio", "media_assets/images/cheetah.jpg"),
    "lion": ("gradio", "media_assets/images/lion.jpg"),
    "tower": ("gradio", "media_assets/images/tower.jpg"),
}
"""Photographs in installed packages, by subject: package and path. The motorcycle (Middlebury stereo data, CC0) was
chosen after it had been captioned, the others before any of them was captioned. The officer is Grace Hopper, by James
S. Davis, 1984."""
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
RUNS = "runs"
"""Folder of training runs; names in it are never names on the Hub."""
WEIGHTS_FROM = "weights_from"
"""Configuration field with the sources."""
LICENSE = "LICENSE"
LICENCES_OF_THE_HUB = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
    bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0
    eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research
    intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit
    mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 open-mdw openrail openrail++ osl-3.0 other pddl postgresql unknown unlicense
    wtfpl zlib
    """.split()  # noqa: SIM905
)
LICENSE_FILES = (LICENSE, "LICENSE.txt", "LICENSE.md")
CARD = "README.md"
INITIALIZED_FROM = {
    "pretrained": "backbone_config",
    "text_pretrained": "text_config",
    "pretrained_language_model": "language_model_config",
    "pretrained_text_encoder": "text_encoder_config",
}
"""Fields with the model from which a part was initialized, and with the configuration of the part. Without the
configuration, transformers would read it from that model."""


class ModelFolderError(ValueError):
    """A folder without a complete model; the message has the folder and the missing parts."""


def packaged_folder(in_wheel: str, in_checkout: str) -> Path:
    """Returns the folder `in_wheel` of the package, or else `in_checkout` of the repository."""
    installed = PACKAGE / in_wheel
    return installed if installed.is_dir() else PACKAGE.parent / in_checkout


def installed_photographs() -> dict[str, Path]:
    """Returns the available files of [`PHOTOGRAPHS`], without importing their packages."""
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
    """Returns the folder of a packaged model, for `from_pretrained` and `pipeline`.

    ```python
    pipeline("image-to-text", model=packaged_model("ngsan-photos"))
    ```

    Raises:
        ValueError: no packaged model has this name; the message lists the names.
    """
    folders, now = packaged_models(), FORMER_NAMES.get(name, name)
    if now != name:
        say_new_name(name, now)
    if now not in folders:
        raise ValueError(f"{name!r} is not a packaged model; available: {', '.join(folders)}.")
    return str(folders[now])


@cache
def say_new_name(former: str, name: str) -> None:
    print(f"hf-ngsan: {former} is now called {name}, and was trained on more photographs.", file=sys.stderr)


def folder_of_packaged(name: Any) -> Any:
    """Returns the folder of a packaged model by name; returns other names and existing paths unchanged."""
    known = packaged_models().keys() | FORMER_NAMES
    is_packaged = isinstance(name, str | os.PathLike) and not os.path.exists(name) and str(name) in known
    return packaged_model(str(name)) if is_packaged else name


def find_model_folder(name: str | os.PathLike) -> str:
    """Returns the folder of a model: `name` itself, or `best`, else `last`, in the folder of a training run.

    The name of a packaged model is replaced by its folder; a name that may be on the Hub is returned unchanged.
    """
    folder = Path(os.path.expanduser(folder_of_packaged(name)))
    if not folder.exists():
        if HUB_NAME.fullmatch(str(name)) and not folder.parent.is_dir() and folder.parts[0] != RUNS:
            return str(name)
        known = [*packaged_models(), *(str(place) for place in folder.parent.glob("*/"))]
        raise FileNotFoundError(f"There is no model folder {folder}{did_you_mean(str(folder), known)}")
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelFolderError(
        f"{folder} has no model (config.json is missing); give a folder of save_pretrained or of a training run."
    )


def own_model_folder(name: str | os.PathLike) -> str:
    """Returns the writable folder of a model; raises a ValueError for packaged models and models of the Hub."""
    folder = find_model_folder(name)
    if not os.path.isdir(folder):
        raise ValueError(f"{name} is a model on the Hub; give a copy saved with save_pretrained.")
    is_installed = Path(folder).resolve().is_relative_to(PACKAGE.resolve())
    if is_installed or folder_of_packaged(name) != name:
        raise ValueError(
            f"{name} is packaged and must not be changed; copy its folder, for example with cp -r {folder} my-model, "
            "and give the copy."
        )
    return folder


def is_model(place: str) -> bool:
    """Returns whether a path or name is a local model."""
    try:
        return os.path.isdir(find_model_folder(place))
    except (FileNotFoundError, ModelFolderError):
        return False


def packaged_configs() -> dict[str, Path]:
    """Returns the files of the packaged training configs by name, such as "ngsan/scenes"."""
    folder = packaged_folder("example_configs", "examples/configs")
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.glob("*/*.yaml"))}


def packaged_config(name: str) -> Path:
    """Returns the file of a packaged config by name, with or without `.yaml`; errors suggest the most similar name."""
    packaged, key = packaged_configs(), Path(name).as_posix().removesuffix(".yaml")
    if key in packaged:
        return packaged[key]
    listed = "; `hf-ngsan configs` lists the packaged ones."
    raise FileNotFoundError(f"There is no training config {name}{did_you_mean(key, packaged, listed)}")


def find_config(name: str | os.PathLike, folder: Path = Path()) -> Path:
    """Returns the file of a training config: a file in `folder`, or else a packaged config."""
    path = folder / os.path.expanduser(name)
    return path if path.exists() and not path.is_dir() else packaged_config(os.fspath(name))


def describe_config(file: Path) -> str:
    """Returns the first line of a config's opening comment, or ""."""
    first_line = file.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def copy_config(name: str, output: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Copies a packaged training config with its comments; its `base` becomes the name of a packaged config."""
    file = packaged_config(name)
    if os.path.exists(output) and not (overwrite and os.path.isfile(output)):
        raise FileExistsError(f"{output} already exists; choose another file, or replace it with --overwrite.")
    names = {path: name for name, path in packaged_configs().items()}
    text = file.read_text(encoding="utf-8")
    for base in re.findall(r"^base: (\S+)", text, flags=re.M):
        text = text.replace(f"base: {base}", f"base: {names[find_config(base, file.parent)]}", 1)
    write_text_atomically(output, text)


@dataclass(frozen=True)
class Source:
    """A model from which others are derived, and its licence."""

    name: str  # name on the Hub, of a packaged model, or in its card
    license: str | None = None  # identifier on the Hub
    license_name: str | None = None  # for the licence "other", like the URL
    license_link: str | None = None

    @property
    def terms(self) -> tuple[str | None, str | None, str | None]:
        return self.license, self.license_name, self.license_link

    @property
    def is_public(self) -> bool:
        """Whether the name is that of a model on the Hub or of a packaged model."""
        return HUB_NAME.fullmatch(self.name) is not None or self.name in packaged_models().keys() | FORMER_NAMES


def sources_of(config: Any) -> list[Source]:
    """Returns the sources of a model's weights, the nearest first, from its configuration or config.json."""
    listed = config.get(WEIGHTS_FROM) if isinstance(config, Mapping) else getattr(config, WEIGHTS_FROM, None)
    return [Source(**entry) for entry in listed or ()]


def check_licence(identifier: str | None, name: str | None) -> None:
    """Raises a ValueError for a licence that the Hub does not list, and for "other" without a name."""
    if identifier not in LICENCES_OF_THE_HUB | {None}:
        near = did_you_mean(str(identifier).lower().replace(" ", "-"), LICENCES_OF_THE_HUB)
        raise ValueError(
            f"The Hub does not list the licence {identifier!r}{near} For another licence, use other and a name "
            "(--license-name, license_name in a card): https://huggingface.co/docs/hub/repositories-licenses."
        )
    if (identifier == "other") != bool(name):
        raise ValueError("The licence other needs a name; others have none (--license-name, license_name in a card).")


def licence_of(config: Any) -> Source | None:
    """Returns the licence that follows from the sources of a model; "other" with all names if they differ."""
    terms = {source.terms: source for source in sources_of(config) if source.license is not None}
    if len(terms) <= 1:
        return next(iter(terms.values()), None)
    names = dict.fromkeys(source.license_name or str(source.license) for source in terms.values())
    links = [source.license_link for source in terms.values() if source.license_link is not None]
    return Source("", "other", " and ".join(names), links[0] if len(links) == 1 else None)


def remember_source(model: Any, place: str | os.PathLike, fetch: bool = False) -> None:
    """Records that a model is derived from another one and its sources; `fetch` allows requests to the Hub."""
    place = str(folder_of_packaged(place))
    config = file_of(place, "config.json", fetch)
    inherited = sources_of(config and read_json_or_none(config))
    source = described_by_card(place, file_of(place, CARD, fetch))
    is_new = source.is_public or (source.license and source.terms not in [other.terms for other in inherited])
    sources: dict[str, Source] = {}
    for listed in [*([source] if is_new else []), *sources_of(model.config), *inherited]:
        if listed.name not in sources or sources[listed.name].license is None:
            sources[listed.name] = listed
    if sources:
        setattr(model.config, WEIGHTS_FROM, [without_unknown(listed) for listed in sources.values()])
    text = getattr(model, "license_text", None) or ""
    added = next(filter(None, (read_text(file_of(place, name, fetch)) for name in LICENSE_FILES)), "")
    if added.strip() not in text:
        text = f"{text.rstrip()}\n\n{'-' * 72}\n\n{added}" if text else added
    model.license_text = text or None


def complete_sources(model: Any) -> None:
    """Completes the sources of a model before it is saved, with requests to the Hub if needed."""
    if not hasattr(model, "license_text"):
        remember_source(model, model.name_or_path or "")
    for source in sources_of(model.config):
        if source.is_public and (source.license is None or model.license_text is None):
            remember_source(model, source.name, fetch=True)


def write_licence(model: Any, folder: str | os.PathLike) -> None:
    """Writes the licence texts of a model's sources, if any, into its folder."""
    text = getattr(model, "license_text", None)
    if text:
        write_text_atomically(Path(folder) / LICENSE, text)


def names_of_parts(section: Any) -> Iterator[str]:
    """Yields the models in the section `model` of a training config from which parts are initialized."""
    if isinstance(section, Mapping):
        for key, value in section.items():
            if key in INITIALIZED_FROM and isinstance(value, str):
                yield value
            else:
                yield from names_of_parts(value)


def described_by_card(place: str, card: Path | None) -> Source:
    """Returns a source from its model card; without a card and a public name, its name is ""."""
    from huggingface_hub import metadata_load

    stated: Mapping = {}
    if card is not None:
        with suppress(Exception):  # YAML errors have many types
            stated = metadata_load(card) or {}
    name = public_name(place)
    if not name and stated.get("license"):
        name = Path(place).resolve().name
    terms = {
        key: " and ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key in ("license", "license_name", "license_link")
        if (value := stated.get(key)) is not None
    }
    if terms.get("license", "other") not in LICENCES_OF_THE_HUB:
        terms = {"license_name": terms["license"], **terms, "license": "other"}
    if "license_link" in terms and "://" not in terms["license_link"]:
        terms["license_link"] = LICENSE  # a file, which is saved with this name
    return Source(name, **terms)


def public_name(place: str) -> str:
    """Returns the packaged name or Hub name of a model by its folder; "" for other folders."""
    path = Path(place)
    for name, folder in packaged_models().items():
        if path.is_dir() and path.samefile(folder):
            return name
    cache_name = next((part for part in path.parts if part.startswith("models--")), None)
    if cache_name is not None and path.is_dir():
        return cache_name.removeprefix("models--").replace("--", "/", 1)
    return place if HUB_NAME.fullmatch(place) and not path.exists() else ""


def file_of(place: str, name: str, fetch: bool) -> Path | None:
    """Returns a file of a model; None if it is missing or outside of the folder."""
    from huggingface_hub import constants

    if not HUB_NAME.fullmatch(place) or Path(place).exists():
        file = Path(place, name)
        homes = map(os.path.realpath, (place, constants.HF_HUB_CACHE))
        inside = any(Path(os.path.realpath(file)).is_relative_to(home) for home in homes)
        return file if place and inside and file.is_file() else None
    return file_on_hub(place, name, fetch)


@cache
def file_on_hub(repo_id: str, name: str, fetch: bool) -> Path | None:
    from huggingface_hub import hf_hub_download

    with suppress(Exception):  # no such file, no network, no permission, ...
        return Path(hf_hub_download(repo_id, name, local_files_only=not fetch))
    return None


def read_text(file: Path | None) -> str:
    return "" if file is None else file.read_text(encoding="utf-8", errors="replace")


def without_unknown(source: Source) -> dict[str, str]:
    return {name: value for name, value in asdict(source).items() if value is not None}
