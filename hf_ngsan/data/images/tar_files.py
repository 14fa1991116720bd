"""WebDataset's tar files, in a folder or on the Hub, as datasets of images with captions.

```python
open_tar_files({"train": ["photos/000.tar"]}, streaming=True)["train"]  # an `IterableDataset`
```
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from datasets import Dataset, Features, Image, IterableDataset, List, Value
from datasets.utils.file_utils import xopen

from ..formats.webdataset import Shard
from ..prepared import Rows, fingerprint, prepare

FEATURES = Features({"image": Image(), "captions": List(Value("string")), "file_name": Value("string")})


def open_tar_files(places: Mapping[Any, Sequence[str]], streaming: bool) -> dict[str, Dataset | IterableDataset]:
    """Opens the samples of tar files by split, as `IterableDataset` or else as `Dataset`, prepared in the cache.

    Args:
        places: paths or URLs of the tar files of each split.
        streaming: whether samples are read when they are iterated over.

    Raises:
        DataError: a file or a sample cannot be read, or the cache cannot be written.
    """
    return {str(split): open_files(str(split), list(map(str, files)), streaming) for split, files in places.items()}


def open_files(split: str, files: list[str], streaming: bool) -> Dataset | IterableDataset:
    if streaming:
        return IterableDataset.from_generator(samples_of, features=FEATURES, gen_kwargs={"places": files})
    key = fingerprint("webdataset", [(file, *size_and_time(file)) for file in files])
    return prepare("webdataset", key, split, lambda: Rows(FEATURES, samples_of(files))).with_format(None)


def size_and_time(place: str) -> tuple[int, ...]:
    """Returns what changes with a file; nothing for a URL of the Hub, which names its revision."""
    if "://" in place:
        return ()
    status = Path(place).stat()
    return status.st_size, status.st_mtime_ns


def samples_of(places: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the samples of tar files as rows, one file after the other."""
    for place in places:
        with local_file(place) as path:
            shard = Shard(path, place)
            for key in shard.samples:
                content, name = shard.image_of(key)
                image = {"bytes": content, "path": name}
                yield {"image": image, "captions": list(shard.captions_of(key)), "file_name": name}


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
