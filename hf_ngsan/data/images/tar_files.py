"""WebDataset: tar files with an image `KEY.jpg` and captions `KEY.txt` or `KEY.json` for each key."""

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any

from datasets import Dataset, Features, Image, IterableDataset, List, Value
from datasets.utils.file_utils import xopen

from ..errors import DataError, naming_damage
from ..prepared import Rows, prepare
from .rows import warn

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
"""Compressed files are an error; ignoring them would silently leave out their images."""
IMAGE_SUFFIXES = ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
TEXT_SUFFIXES = ("txt", "caption", "captions", "text")
JSON_KEYS = ("captions", "caption", "sentences", "text")
LINE_END = re.compile(r"\r\n?|\n")  # `str.splitlines` also splits at form feeds and Unicode separators
FEATURES = Features({"image": Image(), "captions": List(Value("string")), "file_name": Value("string")})


def open_tar_files(places: Mapping[Any, Sequence[str]], streaming: bool) -> dict[str, Dataset | IterableDataset]:
    """Opens the samples of tar files (paths or URLs by split) as `IterableDataset`, or as cached `Dataset`."""
    parts: dict[str, Dataset | IterableDataset] = {}
    for split, files in ((str(split), list(map(str, files))) for split, files in places.items()):
        if streaming:
            parts[split] = IterableDataset.from_generator(samples_of, features=FEATURES, gen_kwargs={"places": files})
            continue
        # a URL of the Hub includes its revision
        states = [(file, None if "://" in file else Path(file).stat()) for file in files]
        stamps = [(file, state and (state.st_size, state.st_mtime_ns)) for file, state in states]
        make = partial(Rows, FEATURES, samples_of(files))  # a generator: nothing is read yet
        parts[split] = prepare("webdataset", 1, split, stamps, make).with_format(None)
    return parts


def samples_of(places: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the samples of tar files, in the order of their first members, without unpacking to disk. A warning lists
    the members that are not read."""
    left_out = set[str]()
    for place in places:
        with local_file(place) as path:
            samples = members_by_key(path, place)
            with open(path, "rb") as file:
                for key, members in samples.items():
                    images = [suffix for suffix in IMAGE_SUFFIXES if suffix in members]
                    if len(images) != 1:
                        listed = ", ".join(IMAGE_SUFFIXES)
                        raise DataError(f"{place}, {key} has {len(images)} images; it must have one, of {listed}.")
                    member = members[images[0]]
                    image = {"bytes": read_member(file, member), "path": member.name}
                    captions, read = captions_of(file, members, place)
                    left_out |= members.keys() - {images[0], *read}
                    yield {"image": image, "captions": captions, "file_name": member.name}
    if left_out:
        folder, listed = os.path.dirname(places[0]), ", ".join(f"KEY.{suffix}" for suffix in sorted(left_out))
        warn(f"{folder}: captions are read from KEY.txt or KEY.json; other members are left out: {listed:.200}.")


@contextmanager
def local_file(place: str) -> Iterator[Path]:
    """Yields the path of a file; a file of the Hub is copied for the duration of the `with` block."""
    if "://" not in place:
        yield Path(place)
        return
    with TemporaryDirectory() as folder:  # Windows cannot open a NamedTemporaryFile twice
        with xopen(place, "rb") as remote, open(Path(folder, "copy.tar"), "wb") as copy:
            shutil.copyfileobj(remote, copy)
        yield Path(folder, "copy.tar")


def members_by_key(path: Path, name: str) -> dict[str, dict[str, tarfile.TarInfo]]:
    """Returns the members of an uncompressed tar file by key and suffix; raises a DataError for a damaged file."""
    if name.lower().endswith(TAR_SUFFIXES[1:]):
        raise DataError(f"{name} is compressed; decompress it to a .tar file.")
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    with naming_damage(name), tarfile.open(path, "r:") as archive:
        for member in archive:
            if member.size < 0:  # it would point to an earlier member, in an endless loop
                raise DataError(f"{name}, {member.name} has the invalid size {member.size}; download the file again.")
            folder, _, last = member.name.rpartition("/")
            if member.isdir() or last.startswith("._"):  # attributes of macOS
                continue
            stem, _, suffix = last.partition(".")
            sample = samples.setdefault(f"{folder}/{stem}" if folder else stem, {})
            if sample.setdefault(suffix.lower(), member) is not member:
                raise DataError(f"{name}, {member.name} occurs twice; remove or rename one.")
            if not member.isreg() or member.issparse():
                raise DataError(f"{name}, {member.name} is a link, a device or a sparse file; it must be a plain file.")
            if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
                raise DataError(f"{name}, {member.name} has a name outside of the folder.")
        refuse_more(path, archive.offset, name)
    return samples


def refuse_more(path: Path, end: int, name: str) -> None:
    """Raises a DataError for data after the end mark, or a missing end mark; tarfile does not report these."""
    with open(path, "rb") as file:
        file.seek(end)
        if not (chunk := file.read(tarfile.BLOCKSIZE)):
            raise DataError(f"{name} lacks the zeros at the end of a tar file, so it may be truncated.")
        while chunk:
            if chunk.strip(b"\0"):
                raise DataError(f"{name} has data after its end at byte {end}: it is damaged, or several files in one.")
            chunk = file.read(2**20)


def captions_of(file: IO[bytes], members: Mapping[str, tarfile.TarInfo], name: str) -> tuple[list[str], list[str]]:
    """Returns the lines of all texts, or else the captions in a JSON; also returns the suffixes that were read."""
    texts, read = list[str](), list[str]()
    for suffix in (suffix for suffix in (*TEXT_SUFFIXES, "json") if suffix in members):
        if suffix == "json" and texts:
            break
        read.append(suffix)
        where = f"{name}, {members[suffix].name}"
        with naming_damage(where):
            text = read_member(file, members[suffix]).decode("utf-8-sig")
            candidates: list[Any] = [LINE_END.split(text)]
            if suffix == "json":
                document = json.loads(text)
                candidates = [document.get(key) for key in JSON_KEYS] if isinstance(document, dict) else [document]
        for value in candidates:
            captions = [value] if isinstance(value, str) else value or []
            if isinstance(captions, list) and all(isinstance(caption, str) for caption in captions):
                if words := [" ".join(caption.split()) for caption in captions if caption.strip()]:
                    texts += [caption for caption in words if caption not in texts]
                    break
            elif isinstance(document, dict):
                raise DataError(f"{where}: captions are {value!r:.60}; they must be a string or a list of strings.")
    return texts, read


def read_member(file: IO[bytes], member: tarfile.TarInfo) -> bytes:
    file.seek(member.offset_data)
    return file.read(member.size)
