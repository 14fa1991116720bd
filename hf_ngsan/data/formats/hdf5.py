"""HDF5 files of the Meshed-Memory Transformer (`ID_features`, `ID_boxes`) and of RSTNet (`ID_grids`)."""

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import DataError
from .arrays import check_array, naming_damage, refuse_empty, refuse_inflation
from .record import FeatureRecord, ListedSource

if TYPE_CHECKING:
    import h5py

SLACK = 2**12
"""Bytes by which compression may lengthen a chunk."""
FEATURES, BOXES, GRIDS = "_features", "_boxes", "_grids"


def open_hdf5(path: Path) -> "h5py.File":
    """Opens an HDF5 file; raises a DataError for another file, or without the package h5py."""
    try:
        import h5py
    except ImportError:
        raise DataError(
            f"{path} is an HDF5 file, which the package h5py reads; install it with pip install 'hf-ngsan[features]'."
        ) from None
    with naming_damage(str(path)):
        return h5py.File(path, "r")


def keys_of(file: "h5py.File", path: Path) -> set[str]:
    """Returns the names of the arrays in a file; raises a DataError if the file is damaged."""
    with naming_damage(str(path)):
        keys = set(file)
    if not all(isinstance(key, str) for key in keys):
        raise DataError(f"{path} has an array whose name is no text; it is damaged, get it again.")
    return keys


class Hdf5Source(ListedSource):
    """An HDF5 file with arrays of each image, named by its id and a suffix.

    Args:
        path: path of the file.
    """

    suffixes: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.file = open_hdf5(path)
        self.keys = keys_of(self.file, path)
        names = {key.removesuffix(suffix) for suffix in self.suffixes for key in self.keys if key.endswith(suffix)}
        if not names:
            raise DataError(f"{path} has no arrays named {' or '.join(f'ID{suffix}' for suffix in self.suffixes)}.")
        super().__init__(path, [(name, name) for name in sorted(names)])

    def where(self, key: str) -> str:
        return f"{self.path}, {key}"

    def close(self) -> None:
        self.file.close()

    def read_array(self, key: str) -> np.ndarray:
        """Reads an array of two dimensions that is stored in the file itself."""
        import h5py

        where = self.where(key)
        if key not in self.keys:
            raise DataError(f"{where} is missing; the file has other arrays of this image.")
        with naming_damage(where):
            link = self.file.get(key, getlink=True)
            dataset = self.file[key] if isinstance(link, h5py.HardLink) else None
            if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
                raise DataError(f"{where} is no array that is stored in this file.")
            if dataset.ndim != 2:
                raise DataError(f"{where} has shape {dataset.shape}; it must have two dimensions.")
            num_bytes = check_array(dataset.shape, dataset.dtype, where)
            refuse_unstored(dataset, num_bytes, where)
            return dataset[:]


def refuse_unstored(dataset: "h5py.Dataset", num_bytes: int, where: str) -> None:
    """Raises a DataError for an array that its file has only in part, or that takes much memory to decompress."""
    if dataset.chunks is None:
        stored = dataset.id.get_storage_size()
        if stored < num_bytes:  # the rest would be read as a fill value
            raise DataError(f"{where} has {num_bytes} bytes, of which the file holds {stored}; get it again.")
        return
    part_bytes = check_array(dataset.chunks, dataset.dtype, where)
    number = math.prod(-(-size // side) for size, side in zip(dataset.shape, dataset.chunks, strict=True))
    parts: list[int] = []
    dataset.id.chunk_iter(lambda part: parts.append(part.size))
    if len(parts) < number:
        raise DataError(f"{where} has {number} parts, of which the file holds {len(parts)}; get it again.")
    if max(parts, default=0) > 2 * part_bytes + SLACK:  # with any compression filter
        raise DataError(f"{where} has a part of {max(parts)} bytes for {part_bytes} bytes of numbers; get it again.")
    refuse_inflation(max(num_bytes, part_bytes), sum(parts), where)


class M2Source(Hdf5Source):
    """Regions as the Meshed-Memory Transformer stores them (Cornia et al. 2020)."""

    suffixes = (FEATURES, BOXES)

    def read_record(self, key: str) -> FeatureRecord:
        features = self.read_array(f"{key}{FEATURES}")
        return FeatureRecord(features, self.read_array(f"{key}{BOXES}") if self.has_boxes else None)

    @cached_property
    def has_boxes(self) -> bool:
        return any(key.endswith(BOXES) for key in self.keys)


class GridSource(Hdf5Source):
    """Square grids as RSTNet stores them (Zhang et al. 2021)."""

    suffixes = (GRIDS,)

    def read_record(self, key: str) -> FeatureRecord:
        features = self.read_array(f"{key}{GRIDS}")
        refuse_empty(features, f"{self.where(key)}{GRIDS}")
        side = math.isqrt(len(features))
        if side**2 != len(features):
            raise DataError(
                f"{self.where(key)}{GRIDS} has shape {features.shape}; it must be (cells, feature dimension)"
                " with the cells of a square grid."
            )
        return FeatureRecord(features, grid=(side, side))


def has_keys(path: Path, suffix: str) -> bool:
    """Returns whether an HDF5 file has arrays with names of this suffix."""
    with open_hdf5(path) as file:
        return any(key.endswith(suffix) for key in keys_of(file, path))


def is_m2(path: Path) -> bool:
    return has_keys(path, FEATURES)


def is_grid(path: Path) -> bool:
    return has_keys(path, GRIDS)
