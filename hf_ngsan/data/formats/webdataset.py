"""WebDataset: tar files with an image `KEY.jpg` and its captions `KEY.txt` or `KEY.json` for each key.

```python
key_of("shard/000012.jpg")  # ("shard/000012", "jpg")
```
"""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import DataError
from .arrays import MAX_ARRAY_BYTES, naming_damage, refuse_large
from .record import ImageRecord, ListedSource, image_size

IMAGE_SUFFIXES = ("bmp", "gif", "jpeg", "jpg", "png", "ppm", "tif", "tiff", "webp")
TEXT_SUFFIXES = ("txt", "caption", "captions", "text")
JSON_KEYS = ("captions", "caption", "sentences", "text")
MAX_TEXT_BYTES = 2**20
"""Maximal bytes of a text member."""
BLOCK = tarfile.BLOCKSIZE
CHUNK = 2**20
ZIP = b"PK\x03\x04"


class TarSource(ListedSource):
    """An uncompressed tar file; nothing is unpacked to the disk.

    Args:
        path: path of the file.

    Raises:
        DataError: the file is cut, damaged or no tar file.
    """

    def __init__(self, path: Path) -> None:
        self.samples: dict[str, dict[str, tarfile.TarInfo]] = {}
        self.repeated: dict[str, str] = {}
        with naming_damage(str(path)), tarfile.open(path, "r:") as archive:
            for member in members_of(archive, path):
                if not member.isdir():
                    key, suffix = key_of(member.name)
                    if suffix in self.samples.setdefault(key, {}):
                        self.repeated[key] = member.name
                    self.samples[key][suffix] = member
        super().__init__(path, [(PurePosixPath(key).name, key) for key in self.samples])

    def where(self, key: str) -> str:
        return f"{self.path}, {key}"

    def read_record(self, key: str) -> ImageRecord:
        where, members = self.where(key), self.samples[key]
        if key in self.repeated:
            raise DataError(f"{self.path} has {self.repeated[key]} twice; leave one out, or give it another name.")
        for member in members.values():
            refuse_unsafe(member, f"{self.path}, {member.name}")
        images = [suffix for suffix in IMAGE_SUFFIXES if suffix in members]
        if len(images) != 1:
            raise DataError(f"{where} has {len(images)} images; it must have one, of {', '.join(IMAGE_SUFFIXES)}.")
        content = self.read(members[images[0]])
        return ImageRecord(
            content,
            f"{PurePosixPath(key).name}.{images[0]}",
            self.captions_of(members, where),
            image_size(content, f"{where}.{images[0]}"),
        )

    def captions_of(self, members: dict[str, tarfile.TarInfo], where: str) -> tuple[str, ...] | None:
        """Returns the lines of a text member, or the value of a known key of a JSON member; None without either."""
        found: object = None
        suffix = next((one for one in (*TEXT_SUFFIXES, "json") if one in members), None)
        if suffix is None:
            return None
        with naming_damage(f"{where}.{suffix}"):
            text = self.read(members[suffix], MAX_TEXT_BYTES).decode("utf-8-sig")
            if "\0" in text:
                raise DataError(f"{where}.{suffix} has zero bytes, so it is damaged; get {self.path} again.")
            if suffix != "json":
                found = text.splitlines()
            elif isinstance(document := json.loads(text), dict):
                found = next((document[name] for name in JSON_KEYS if name in document), None)
        if found is None:
            return None
        captions = [found] if isinstance(found, str) else found
        if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
            raise DataError(f"{where}.{suffix}: captions are {found!r:.60}; they must be a text or a list of texts.")
        return tuple(" ".join(caption.split()) for caption in captions if caption.strip())

    def read(self, member: tarfile.TarInfo, limit: int = MAX_ARRAY_BYTES) -> bytes:
        where = f"{self.path}, {member.name}"
        refuse_large(member.size, where, limit)
        with naming_damage(where), open(self.path, "rb") as file:
            file.seek(member.offset_data)
            content = file.read(member.size)
        if len(content) != member.size:
            raise DataError(f"{where} has {member.size} bytes, but the file ends after {len(content)}; get it again.")
        return content


def key_of(name: str) -> tuple[str, str]:
    """Returns `shard/000012` and `jpg` of `shard/000012.jpg`: the key ends at the first point of the last part."""
    folder, _, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return f"{folder}/{stem}" if folder else stem, suffix.lower()


def refuse_unsafe(member: tarfile.TarInfo, where: str) -> None:
    """Raises a DataError for a member that is no plain file, or whose name leads out of the folder."""
    name = PurePosixPath(member.name.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in str(name).partition("/")[0]:
        raise DataError(f"{where} has a name that leads out of the folder; such a file is an attack.")
    if not member.isreg() or member.issparse():
        raise DataError(f"{where} is a link, a device or a sparse file; it must be a plain file.")


def members_of(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an opened tar file, which is read to its end.

    Raises:
        DataError: data follow the end mark, as in a damaged file or several concatenated ones, or the end mark is
            missing. tarfile reports neither.
    """
    for member in archive:
        if member.size < 0:  # it would lead back to an earlier member, forever
            raise DataError(f"{path}, {member.name} has {member.size} bytes; get it again.")
        yield member
    file: Any = archive.fileobj
    file.seek(archive.offset)
    if not file.read(BLOCK):
        raise DataError(f"{path} stops without the zeros that end a tar file, so it may be cut; get it again.")
    file.seek(archive.offset)
    place = archive.offset
    while chunk := file.read(CHUNK):
        if behind := chunk.lstrip(b"\0"):
            place += len(chunk) - len(behind)
            raise DataError(
                f"{path} goes on at byte {place}, behind its end at byte {archive.offset}, so it is damaged, or several"
                " tar files in one: get it again, or give these as files of their own."
            )
        place += len(chunk)


def refuse_lost_members(path: Path) -> None:
    """Raises a DataError for a tar file, compressed or not, that the datasets library would read only in part."""
    with naming_damage(str(path)), open(path, "rb") as file:
        if file.read(len(ZIP)) == ZIP:
            return  # the library reads zip files too; their directory is at the end, so it notices a cut
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for _ in members_of(archive, path):
                archive.members = []  # type: ignore[attr-defined]  # as the datasets library does
