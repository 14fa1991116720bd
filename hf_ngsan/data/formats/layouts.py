"""The layouts of released feature files. No pickles are loaded except torch tensors."""

import binascii
import math
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..coco_files import number_of
from ..errors import DataError, naming_damage
from ..images import OwnFiles, visible_files

if TYPE_CHECKING:
    import h5py

TSV_FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
FEATURES, BOXES, GRIDS = "_features", "_boxes", "_grids"  # suffixes of array names in HDF5 files
COCOBU_PARTS = ("_att", "_box", "_fc")


@dataclass(frozen=True)
class VisualRecord:
    """Features `(N, D)` of one image or video and, if the file has them, boxes `(N, 4)` in pixels or relative to the
    image, width and height of the image, and rows and columns of a grid."""

    features: np.ndarray
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None


class Entry(NamedTuple):
    """A record that has not been read yet: the name of its image, if already known, its position for messages, the
    position of the next record for [`FeatureSource.entries`], and a function that returns name and record."""

    name: str | None
    where: str
    end: int
    load: Callable[[], tuple[str, VisualRecord]]

    def read(self) -> tuple[str, VisualRecord]:
        with naming_damage(self.where):
            return self.load()


class FeatureSource:
    """An opened file or folder of named records. `total` is the `end` of the last entry, in `unit`. If not all names
    are numbers (`is_numbered`), positions become ids."""

    unit = "images"

    def __init__(self, path: Path, names: Sequence[tuple[str, str]]) -> None:
        self.path, self.names, self.total = path, names, len(names)

    @cached_property
    def is_numbered(self) -> bool:
        return all(number_of(name) is not None for name, _ in self.names)

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yields the entries from a position (0 or the `end` of an entry) on, always in the same order."""
        for place, (name, key) in enumerate(self.names[start:], start):
            yield Entry(name, self.where(key), place + 1, partial(self.read_named, name, key))

    def read_named(self, name: str, key: str) -> tuple[str, VisualRecord]:
        return name, self.read_record(key)

    def where(self, key: str) -> str:
        return f"{self.path / key if self.path.is_dir() else self.path}"

    def read_record(self, key: str) -> VisualRecord:
        raise NotImplementedError

    def close(self) -> None:
        """Closes open files."""


def files_in(path: Path, *suffixes: str) -> list[str]:
    """Returns the sorted files with these suffixes in a folder, see [`visible_files`]; "" for a single file."""
    if path.is_file():
        return [""]
    own_files, where = OwnFiles(path), str(path)
    names = (name for name in visible_files(path) if name.lower().endswith(suffixes))
    return sorted(name for name in names if os.path.isfile(own_files.find(name, where)))


class FileSource(FeatureSource):
    """A folder (searched recursively) with one file per image, named by its stem; or one such file."""

    def __init__(self, path: Path, suffix: str, read: Callable[[Path], VisualRecord]) -> None:
        super().__init__(path, [((path / key).stem, key) for key in files_in(path, suffix)])
        self.read = read

    def read_record(self, key: str) -> VisualRecord:
        return self.read(self.path / key)


class TsvSource(FeatureSource):
    """Bottom-up attention (Anderson et al. 2018): lines of six fields, boxes and features in base64."""

    unit = "bytes"

    def __init__(self, path: Path) -> None:
        super().__init__(path, [])
        self.total = path.stat().st_size

    def entries(self, start: int = 0) -> Iterator[Entry]:
        number = 0
        with open(self.path, "rb") as file:
            while line := file.readline():
                number += 1
                if file.tell() > start and not line.isspace():
                    where = f"{self.path}, line {number}"
                    yield Entry(None, where, file.tell(), partial(parse_line, line, where))


def parse_line(line: bytes, where: str) -> tuple[str, VisualRecord]:
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(TSV_FIELDS):
        raise DataError(f"{where} has {len(fields)} fields; it must have {len(TSV_FIELDS)}: {', '.join(TSV_FIELDS)}.")
    image_id, width, height, num_boxes = map(int, fields[:4])
    where = f"{where} (image {image_id})"
    with naming_damage(where):
        boxes, features = (np.frombuffer(binascii.a2b_base64(text, strict_mode=True), "<f4") for text in fields[4:])
    if boxes.size != num_boxes * 4 or num_boxes < 1:
        raise DataError(f"{where}: boxes holds {boxes.size} numbers, but num_boxes is {num_boxes}.")
    return str(image_id), VisualRecord(features.reshape(num_boxes, -1), boxes.reshape(-1, 4), (width, height))


class Hdf5Source(FeatureSource):
    """An HDF5 file with arrays of each image, named by its id and a suffix: features and boxes of the Meshed-Memory
    Transformer (Cornia et al. 2020), or square grids of RSTNet (Zhang et al. 2021)."""

    def __init__(self, path: Path) -> None:
        self.file = open_hdf5(path)
        keys = list(self.file)
        self.has_boxes = any(key.endswith(BOXES) for key in keys)
        suffixes = (GRIDS,) if any(key.endswith(GRIDS) for key in keys) else (FEATURES, BOXES)
        names = {key.removesuffix(suffix) for suffix in suffixes for key in keys if key.endswith(suffix)}
        super().__init__(path, [(name, name) for name in sorted(names)])

    def where(self, key: str) -> str:
        return f"{self.path}, {key}"

    def close(self) -> None:
        self.file.close()

    def read_record(self, key: str) -> VisualRecord:
        if f"{key}{GRIDS}" not in self.file:
            features = self.read_array(f"{key}{FEATURES}")
            return VisualRecord(features, self.read_array(f"{key}{BOXES}") if self.has_boxes else None)
        features = self.read_array(f"{key}{GRIDS}")
        side = math.isqrt(len(features))
        if side**2 != len(features):
            raise DataError(f"{self.where(key)}{GRIDS} has {len(features)} cells, which do not form a square grid.")
        return VisualRecord(features, grid=(side, side))

    def read_array(self, key: str) -> np.ndarray:
        """Reads an array that is stored completely in the file itself: HDF5 would read missing parts as zeros."""
        import h5py

        link = self.file.get(key, getlink=True)
        dataset = self.file[key] if isinstance(link, h5py.HardLink) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
            raise DataError(f"{self.where(key)} is not an array stored in this file.")
        if dataset.chunks is None:
            is_whole = dataset.id.get_storage_size() >= dataset.nbytes
        else:
            sides = zip(dataset.shape, dataset.chunks, strict=True)
            is_whole = dataset.id.get_num_chunks() >= math.prod(-(-size // side) for size, side in sides)
        if not is_whole:
            raise DataError(f"{self.where(key)} is incomplete; download the file again.")
        return dataset[:]


def open_hdf5(path: Path) -> "h5py.File":
    try:
        import h5py
    except ImportError:
        raise DataError(f"{path} is an HDF5 file and needs h5py: pip install 'hf-ngsan[features]'.") from None
    return h5py.File(path, "r")


def is_m2(path: Path) -> bool:
    with open_hdf5(path) as file:
        return any(key.endswith(FEATURES) for key in file)


def is_grid(path: Path) -> bool:
    with open_hdf5(path) as file:
        return any(key.endswith(GRIDS) for key in file)


def read_cocobu(path: Path) -> VisualRecord:
    """Reads `NAME_att/ID.npz` of ImageCaptioning.pytorch, and boxes in `NAME_box/ID.npy` if this folder exists."""
    with np.load(path, allow_pickle=False) as arrays:
        features = arrays["feat"]
    if features.ndim == 3:
        return VisualRecord(features.reshape(-1, features.shape[-1]), grid=features.shape[:2])
    folder = path.parent
    name = f"{folder.name.removesuffix('_att')}_box/{path.stem}.npy"
    boxes = Path(OwnFiles(folder.parent).find(name, str(path)))
    return VisualRecord(features, read_npy(boxes) if boxes.parent.is_dir() else None)


def is_cocobu(path: Path) -> bool:
    return path.parent.name.endswith(COCOBU_PARTS) or (path.suffix == ".npz" and "feat" in keys_of_npz(path))


def read_vqa(path: Path) -> VisualRecord:
    """Reads regions. The number of boxes determines whether `x` is (D, n) or (n, D)."""
    with np.load(path, allow_pickle=False) as arrays:
        features, boxes = arrays["x"], arrays["bbox"]
        size = int(arrays["image_w"].item()), int(arrays["image_h"].item())
        number = int(arrays["num_bbox"].item()) if "num_bbox" in arrays else len(boxes)
    if len(boxes) != number or features.ndim != 2 or features.shape.count(number) != 1:
        raise DataError(f"{path}: x of shape {features.shape} and bbox of {boxes.shape} do not match {number} boxes.")
    return VisualRecord(features.T if features.shape[1] == number else features, boxes, size)


def is_vqa(path: Path) -> bool:
    return "x" in keys_of_npz(path)


def read_tensor(path: Path) -> VisualRecord:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats
            tensor = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # hide its message, which explains how to load the file anyway
        raise DataError(f"{path} has objects other than tensors, which are not loaded for safety.") from None
    _, dimension, height, width = tensor.shape
    return VisualRecord(tensor.detach().numpy().reshape(dimension, height * width).T, grid=(height, width))


def read_map(path: Path) -> VisualRecord:
    features = read_npy(path)
    dimension, height, width = features.shape
    return VisualRecord(features.reshape(dimension, height * width).T, grid=(height, width))


def is_map(path: Path) -> bool:
    shape = read_npy(path).shape
    return len(shape) == 3 and shape[0] != 1


def read_video_features(path: Path) -> VisualRecord:
    features = read_npy(path)
    if features.ndim != 3 or features.shape[0] != 1:
        raise DataError(f"{path} has shape {features.shape}; it must be (1, frames, feature dimension).")
    return VisualRecord(features[0])


def is_video(path: Path) -> bool:
    shape = read_npy(path).shape
    return len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)


def read_npy(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def keys_of_npz(path: Path) -> set[str]:
    with np.load(path, allow_pickle=False) as arrays:
        return set(arrays.files)
