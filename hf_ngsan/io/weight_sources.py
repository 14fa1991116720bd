"""Where the weights of a model come from: the models that they began as, and the licences of these.

They travel with every derived model, in its configuration and in a file `LICENSE` beside it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download, metadata_load, try_to_load_from_cache

from .files import read_json_or_none, write_text_atomically
from .packaged import HUB_NAME, folder_of_packaged, packaged_models

FIELD = "weights_from"
"""Field of the configuration with the sources."""
LICENSE = "LICENSE"
LICENSE_FILES = (LICENSE, "LICENSE.txt", "LICENSE.md")
CARD = "README.md"
INITIALIZED_FROM = {
    "pretrained": "backbone_config",
    "text_pretrained": "text_config",
    "pretrained_language_model": "language_model_config",
    "pretrained_text_encoder": "text_encoder_config",
}
"""Fields that name the model from which a part was initialized, and the configuration of the part. Without the
configuration, transformers would read it from there."""


@dataclass(frozen=True)
class Source:
    """A model that others are derived from.

    Attributes:
        name: on the Hub, of a packaged model, or of its card.
        license: identifier on the Hub; None if unknown.
        license_name, license_link: name and URL of a licence that is "other".
    """

    name: str
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None

    @property
    def terms(self) -> tuple[str | None, str | None, str | None]:
        return self.license, self.license_name, self.license_link

    @property
    def is_public(self) -> bool:
        """Whether the name is one on the Hub, or of a packaged model."""
        return HUB_NAME.fullmatch(self.name) is not None or self.name in packaged_models()


def sources_of(config: Any) -> list[Source]:
    """Returns the sources of a model's weights, the nearest first, from its configuration or its config.json."""
    listed = config.get(FIELD) if isinstance(config, Mapping) else getattr(config, FIELD, None)
    return [Source(**entry) for entry in listed or ()]


def licence_of(config: Any) -> Source | None:
    """Returns the licence that follows from the sources of a model; "other" with all names where they differ."""
    terms = {source.terms: source for source in sources_of(config) if source.license is not None}
    if len(terms) <= 1:
        return next(iter(terms.values()), None)
    names = dict.fromkeys(source.license_name or str(source.license) for source in terms.values())
    links = [source.license_link for source in terms.values() if source.license_link is not None]
    return Source("", "other", " and ".join(names), links[0] if len(links) == 1 else None)


def remember_source(model: Any, place: str | os.PathLike, fetch: bool = False) -> None:
    """Records that a model is derived from that of a folder or name, and from the sources of that one.

    `fetch` downloads files that are not here from the Hub; one that does not answer is no error.
    """
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
        setattr(model.config, FIELD, [without_unknown(listed) for listed in sources.values()])
    text = getattr(model, "license_text", None) or ""
    added = next(filter(None, (read_text(file_of(place, name, fetch)) for name in LICENSE_FILES)), "")
    if added.strip() not in text:
        text = f"{text.rstrip()}\n\n{'-' * 72}\n\n{added}" if text else added
    model.license_text = text or None


def complete_sources(model: Any) -> None:
    """Fetches what is not known yet of a model's sources, before it is saved, also where transformers loaded it."""
    if not hasattr(model, "license_text"):
        remember_source(model, model.name_or_path or "")
    for source in sources_of(model.config):
        if source.is_public and (source.license is None or model.license_text is None):
            remember_source(model, source.name, fetch=True)


def write_licence(model: Any, folder: str | os.PathLike) -> None:
    """Writes the texts of the licences of a model's sources, if there are any, into its folder."""
    text = getattr(model, "license_text", None)
    if text:
        write_text_atomically(Path(folder) / LICENSE, text)


def names_of_parts(section: Any) -> Iterator[str]:
    """Yields the models from which parts are initialized by the section `model` of a training config."""
    if isinstance(section, Mapping):
        for key, value in section.items():
            if key in INITIALIZED_FROM and isinstance(value, str):
                yield value
            else:
                yield from names_of_parts(value)


def described_by_card(place: str, card: Path | None) -> Source:
    """Returns a model as its card describes it; without one, and without a public name, its name is ""."""
    stated: Mapping = {}
    if card is not None:
        with suppress(Exception):  # YAML's errors are of many types
            stated = metadata_load(card) or {}
    name = public_name(place)
    if not name and stated.get("license"):
        name = Path(place).resolve().name
    terms = {
        key: " and ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key in ("license", "license_name", "license_link")
        if (value := stated.get(key)) is not None
    }
    if "license_link" in terms and "://" not in terms["license_link"]:
        terms["license_link"] = LICENSE  # a file, which goes along under this name
    return Source(name, **terms)


def public_name(place: str) -> str:
    """Returns the name of a packaged model, or a name on the Hub, by its folder; "" for another folder."""
    path = Path(place)
    for name, folder in packaged_models().items():
        if path.is_dir() and path.samefile(folder):
            return name
    of_cache = next((part for part in path.parts if part.startswith("models--")), None)
    if of_cache is not None and path.is_dir():
        return of_cache.removeprefix("models--").replace("--", "/", 1)
    return place if HUB_NAME.fullmatch(place) and not path.exists() else ""


def file_of(place: str, name: str, fetch: bool) -> Path | None:
    """Returns a file of a model; None if it is missing, or leads out of the folder."""
    if not HUB_NAME.fullmatch(place) or Path(place).exists():
        file = Path(place, name)
        homes = map(os.path.realpath, (place, constants.HF_HUB_CACHE))
        inside = any(Path(os.path.realpath(file)).is_relative_to(home) for home in homes)
        return file if place and inside and file.is_file() else None
    if fetch:
        return fetched(place, name)
    cached = try_to_load_from_cache(place, name)
    return Path(cached) if isinstance(cached, str) else None


@cache
def fetched(repo_id: str, name: str) -> Path | None:
    with suppress(Exception):  # no such file, no network, no right to read it, ...
        return Path(hf_hub_download(repo_id, name))
    return None


def read_text(file: Path | None) -> str:
    return "" if file is None else file.read_text(encoding="utf-8", errors="replace")


def without_unknown(source: Source) -> dict[str, str]:
    return {name: value for name, value in asdict(source).items() if value is not None}
