"""WebDataset: tar files with an image `KEY.jpg` and its captions `KEY.txt` or `KEY.json` for each key.

`hf-ngsan convert`, `hf-ngsan inspect` and `images:SOURCE`, streamed or not, read samples from a [`Shard`].

```python
shard = Shard(Path("000.tar"))
for key in shard.samples:
    content, name = shard.image_of(key)
    shard.captions_of(key)  # ("a dog on a beach",)
```
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ..coco_files import number_of
from ..errors import DataError
from .arrays import MAX_ARRAY_BYTES, naming_damage, refuse_large
from .record import ImageRecord, ListedSource, files_in, image_size

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
"""Compressed files are named in an error; left out, their images would be missed."""
IMAGE_SUFFIXES = ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
TEXT_SUFFIXES = ("txt", "caption", "captions", "text")
JSON_KEYS = ("captions", "caption", "sentences", "text")
LINE_END = re.compile(r"\r\n?|\n")
"""Unlike `str.splitlines`, which also cuts at form feeds and at separators of Unicode."""
MAX_TEXT_BYTES = 2**20
"""Maximal bytes of a text member."""
BLOCK = tarfile.BLOCKSIZE
CHUNK = 2**20


class Shard:
    """The samples of an uncompressed tar file, in the order of their first members; nothing is unpacked to the disk.

    Args:
        path: path of the file.
        name: its name in messages; the path if None.

    Attributes:
        samples: members by suffix, by key.

    Raises:
        DataError: the file is compressed, cut, damaged or no tar file.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or str(path)
        self.samples: dict[str, dict[str, tarfile.TarInfo]] = {}
        self.repeated: dict[str, str] = {}
        if self.name.lower().endswith(TAR_SUFFIXES[1:]):
            raise DataError(f"{self.name} is compressed; unpack it to a .tar file, whose samples can be read in place.")
        with naming_damage(self.name), tarfile.open(path, "r:") as archive:
            for member in members_of(archive, self.name):
                if not member.isdir() and not PurePosixPath(member.name).name.startswith("._"):  # attributes of macOS
                    key, suffix = key_of(member.name)
                    if suffix in self.samples.setdefault(key, {}):
                        self.repeated[key] = member.name
                    self.samples[key][suffix] = member

    def members_of_sample(self, key: str) -> dict[str, tarfile.TarInfo]:
        """Returns the members of a sample; raises a DataError if one is repeated or unsafe."""
        if key in self.repeated:
            raise DataError(f"{self.name} has {self.repeated[key]} twice; leave one out, or give it another name.")
        for member in self.samples[key].values():
            refuse_unsafe(member, f"{self.name}, {member.name}")
        return self.samples[key]

    def image_of(self, key: str) -> tuple[bytes, str]:
        """Returns the bytes of a sample's image and the name of its member; raises a DataError without exactly one."""
        members = self.members_of_sample(key)
        images = [suffix for suffix in IMAGE_SUFFIXES if suffix in members]
        if len(images) != 1:
            raise DataError(
                f"{self.name}, {key} has {len(images)} images; it must have one, of {', '.join(IMAGE_SUFFIXES)}."
            )
        member = members[images[0]]
        return self.read(member), member.name

    def captions_of(self, key: str) -> tuple[str, ...]:
        """Returns the captions of the first member with any: the lines of a text, or the value of a key of a JSON."""
        members = self.members_of_sample(key)
        found = (self.captions_in(members[suffix], suffix) for suffix in (*TEXT_SUFFIXES, "json") if suffix in members)
        return next(filter(None, found), ())

    def captions_in(self, member: tarfile.TarInfo, suffix: str) -> tuple[str, ...]:
        where = f"{self.name}, {member.name}"
        with naming_damage(where):
            text = self.read(member, MAX_TEXT_BYTES).decode("utf-8-sig")
            if "\0" in text:
                raise DataError(f"{where} has zero bytes, so it is damaged; get {self.name} again.")
            if suffix != "json":
                return with_words(LINE_END.split(text))
            document = json.loads(text)
        if not isinstance(document, dict):
            document = {"captions": document} if isinstance(document, str) or are_texts(document) else {}
        for value in map(document.get, JSON_KEYS):
            captions = [value] if isinstance(value, str) else [] if value is None else value
            if not are_texts(captions):
                raise DataError(f"{where}: captions are {value!r:.60}; they must be a text or a list of texts.")
            if found := with_words(captions):
                with naming_damage(where):
                    "".join(found).encode()  # fails for half a character, "\\ud83d", where a text was cut
                return found
        return ()

    def read(self, member: tarfile.TarInfo, limit: int = MAX_ARRAY_BYTES) -> bytes:
        where = f"{self.name}, {member.name}"
        refuse_large(member.size, where, limit)
        with naming_damage(where), open(self.path, "rb") as file:
            file.seek(member.offset_data)
            content = file.read(member.size)
        if len(content) != member.size:
            raise DataError(f"{where} has {member.size} bytes, but the file ends after {len(content)}; get it again.")
        return content


class TarSource(ListedSource):
    """The samples of a tar file, or of all tar files in a folder.

    An image is named by the last part of its key. Where two images of the source would have one name, or one number,
    all are named by their whole keys, and where these are not unique either, by shard and key.

    Args:
        path: path of the file or folder.

    Raises:
        DataError: a file cannot be read, see [`Shard`].
    """

    def __init__(self, path: Path) -> None:
        folder = path if path.is_dir() else path.parent
        self.shards = [Shard(path / name) for name in files_in(path, *TAR_SUFFIXES)]
        self.places = [(shard, key) for shard in self.shards for key in shard.samples]
        candidates = (
            [PurePosixPath(key).name for _, key in self.places],
            [key for _, key in self.places],
            [(shard.path.relative_to(folder) / key).as_posix() for shard, key in self.places],
        )
        chosen = next((one for one in candidates if len({number_of(name) or name for name in one}) == len(one)), None)
        super().__init__(path, [(name, str(place)) for place, name in enumerate(chosen or candidates[-1])])

    @property
    def files(self) -> list[Path]:
        return [shard.path for shard in self.shards]

    def has_captions(self) -> bool:
        for shard, key in self.places:
            try:
                if shard.captions_of(key):
                    return True
            except DataError:  # of a sample that is refused when it is read
                continue
        return False

    def where(self, key: str) -> str:
        shard, sample = self.places[int(key)]
        return f"{shard.name}, {sample}"

    def read_record(self, key: str) -> ImageRecord:
        shard, sample = self.places[int(key)]
        content, name = shard.image_of(sample)
        return ImageRecord(
            content,
            PurePosixPath(name).name,
            shard.captions_of(sample),
            image_size(content, f"{shard.name}, {name}"),
        )


def are_texts(captions: object) -> bool:
    return isinstance(captions, list) and all(isinstance(one, str) for one in captions)


def with_words(captions: list[str]) -> tuple[str, ...]:
    """Returns the captions that have words, each on one line."""
    return tuple(" ".join(caption.split()) for caption in captions if caption.strip())


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


def members_of(archive: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an opened tar file, which is read to its end.

    Raises:
        DataError: data follow the end mark, as in a damaged file or several concatenated ones, or the end mark is
            missing. tarfile reports neither.
    """
    for member in archive:
        if member.size < 0:  # it would lead back to an earlier member, forever
            raise DataError(f"{name}, {member.name} has {member.size} bytes; get it again.")
        yield member
    file: Any = archive.fileobj
    file.seek(archive.offset)
    if not file.read(BLOCK):
        raise DataError(f"{name} stops without the zeros that end a tar file, so it may be cut; get it again.")
    file.seek(archive.offset)
    place = archive.offset
    while chunk := file.read(CHUNK):
        if behind := chunk.lstrip(b"\0"):
            place += len(chunk) - len(behind)
            raise DataError(
                f"{name} goes on at byte {place}, behind its end at byte {archive.offset}, so it is damaged, or several"
                " tar files in one: get it again, or give these as files of their own."
            )
        place += len(chunk)
