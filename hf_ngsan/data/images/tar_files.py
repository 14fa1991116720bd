"""WebDataset: tar files with an image `KEY.jpg` and its captions `KEY.txt` or `KEY.json` for each key."""

import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any

from datasets import Dataset, Features, Image, IterableDataset, List, Value
from datasets.utils.file_utils import xopen

from ..errors import DataError, naming_damage
from ..prepared import Rows, fingerprint, prepare

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
"""Compressed files are named in an error; left out, their images would be missed."""
IMAGE_SUFFIXES = ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
TEXT_SUFFIXES = ("txt", "caption", "captions", "text")
JSON_KEYS = ("captions", "caption", "sentences", "text")
LINE_END = re.compile(r"\r\n?|\n")
"""Unlike `str.splitlines`, which also cuts at form feeds and at separators of Unicode."""
FEATURES = Features({"image": Image(), "captions": List(Value("string")), "file_name": Value("string")})


class TarFile:
    """The samples of an uncompressed tar file, in the order of their first members; nothing is unpacked to the disk.

    `samples` has the members by suffix, by key. A file that is compressed, cut, damaged, several joined ones or no tar
    file is a DataError; `name` is its name there.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or str(path)
        self.samples: dict[str, dict[str, tarfile.TarInfo]] = {}
        self.faults: dict[str, str] = {}
        if self.name.lower().endswith(TAR_SUFFIXES[1:]):
            raise DataError(f"{self.name} is compressed; unpack it to a .tar file, whose samples can be read in place.")
        with naming_damage(self.name), tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.size < 0:  # it would lead back to an earlier member, forever
                    raise DataError(f"{self.name}, {member.name} has {member.size} bytes; get it again.")
                if not member.isdir() and not PurePosixPath(member.name).name.startswith("._"):  # attributes of macOS
                    self.add(member)
            self.refuse_more(archive.offset)

    def add(self, member: tarfile.TarInfo) -> None:
        folder, _, last = member.name.rpartition("/")
        stem, _, suffix = last.partition(".")
        key, suffix = f"{folder}/{stem}" if folder else stem, suffix.lower()
        sample = self.samples.setdefault(key, {})
        if suffix in sample:
            self.faults.setdefault(key, f"{member.name} is there twice; leave one out, or give it another name")
        elif not member.isreg() or member.issparse():
            self.faults.setdefault(key, f"{member.name} is a link, a device or a sparse file; it must be a plain file")
        elif member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
            self.faults.setdefault(key, f"{member.name} has a name that leads out of the folder")
        sample[suffix] = member

    def refuse_more(self, end: int) -> None:
        """Raises a DataError for data behind the end mark, or without one, of which tarfile says nothing."""
        with open(self.path, "rb") as file:
            file.seek(end)
            if not (chunk := file.read(tarfile.BLOCKSIZE)):
                raise DataError(f"{self.name} stops without the zeros that end a tar file, so it may be cut.")
            while chunk:
                if chunk.strip(b"\0"):
                    raise DataError(
                        f"{self.name} goes on behind its end at byte {end}, so it is damaged, or several tar files in"
                        " one: get it again, or give these as files of their own."
                    )
                chunk = file.read(2**20)

    def members_of(self, key: str) -> dict[str, tarfile.TarInfo]:
        if key in self.faults:
            raise DataError(f"{self.name}, {self.faults[key]}.")
        return self.samples[key]

    def image_of(self, key: str) -> tuple[bytes, str]:
        """Returns the bytes of a sample's image and the name of its member; raises a DataError without exactly one."""
        members = self.members_of(key)
        images = [suffix for suffix in IMAGE_SUFFIXES if suffix in members]
        if len(images) != 1:
            raise DataError(
                f"{self.name}, {key} has {len(images)} images; it must have one, of {', '.join(IMAGE_SUFFIXES)}."
            )
        member = members[images[0]]
        return self.read(member), member.name

    def captions_of(self, key: str) -> tuple[str, ...]:
        """Returns the captions of the first member with any: the lines of a text, or the value of a key of a JSON."""
        members = self.members_of(key)
        texts = (self.captions_in(members[suffix], suffix) for suffix in (*TEXT_SUFFIXES, "json") if suffix in members)
        return next(filter(None, texts), ())

    def captions_in(self, member: tarfile.TarInfo, suffix: str) -> tuple[str, ...]:
        where = f"{self.name}, {member.name}"
        with naming_damage(where):
            text = self.read(member).decode("utf-8-sig")
            if suffix != "json":
                return with_words(LINE_END.split(text))
            document = json.loads(text)
        for value in map(document.get, JSON_KEYS) if isinstance(document, dict) else [document]:
            captions = [value] if isinstance(value, str) else value or []
            if isinstance(captions, list) and all(isinstance(caption, str) for caption in captions):
                if words := with_words(captions):
                    return words
            elif isinstance(document, dict):
                raise DataError(f"{where}: captions are {value!r:.60}; they must be a text or a list of texts.")
        return ()

    def read(self, member: tarfile.TarInfo) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(member.offset_data)
            return file.read(member.size)


def with_words(captions: list[str]) -> tuple[str, ...]:
    return tuple(" ".join(caption.split()) for caption in captions if caption.strip())


def open_tar_files(places: Mapping[Any, Sequence[str]], streaming: bool) -> dict[str, Dataset | IterableDataset]:
    """Opens the samples of tar files, paths or URLs by split, as `IterableDataset` or as `Dataset` in the cache."""
    parts: dict[str, Dataset | IterableDataset] = {}
    for split, files in ((str(split), list(map(str, files))) for split, files in places.items()):
        if streaming:
            parts[split] = IterableDataset.from_generator(samples_of, features=FEATURES, gen_kwargs={"places": files})
            continue
        # a URL of the Hub names its revision
        states = [(file, None if "://" in file else Path(file).stat()) for file in files]
        stamps = [(file, state and (state.st_size, state.st_mtime_ns)) for file, state in states]
        rows = Rows(FEATURES, samples_of(files))  # a generator: nothing is read yet
        prepared = prepare("webdataset", fingerprint("webdataset", stamps), split, lambda rows=rows: rows)  # type: ignore[misc]
        parts[split] = prepared.with_format(None)
    return parts


def samples_of(places: list[str]) -> Iterator[dict[str, Any]]:
    for place in places:
        with local_file(place) as path:
            tar = TarFile(path, place)
            for key in tar.samples:
                content, name = tar.image_of(key)
                image = {"bytes": content, "path": name}
                yield {"image": image, "captions": list(tar.captions_of(key)), "file_name": name}


@contextmanager
def local_file(place: str) -> Iterator[Path]:
    """Yields the path of a file; one of the Hub is copied for as long as the `with` block lasts."""
    if "://" not in place:
        yield Path(place)
        return
    with xopen(place, "rb") as remote, NamedTemporaryFile() as copy:
        shutil.copyfileobj(remote, copy)
        copy.flush()
        yield Path(copy.name)
