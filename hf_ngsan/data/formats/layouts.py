"""The layouts of feature files that others have released, one class each. No pickle but torch's tensors is loaded.

| class | layout |
| --- | --- |
| [`TsvSource`] | bottom-up attention (Anderson et al. 2018): lines of six fields, boxes and features in base64 |
| [`M2Source`] | the Meshed-Memory Transformer (Cornia et al. 2020): `ID_features` and `ID_boxes` in HDF5 |
| [`GridSource`] | RSTNet (Zhang et al. 2021): `ID_grids` in HDF5 |
| [`CocobuSource`] | ImageCaptioning.pytorch: `NAME_att/ID.npz` with the key `feat`, and `NAME_box/ID.npy` |
| [`VqaSource`] | `ID.npz` with `x`, (D, n) of MCAN and OpenVQA or (n, D) of bottom-up-attention.pytorch |
| [`TensorSource`], [`ArraySource`] | grid-feats-vqa: a tensor (1, D, h, w), or an array (D, h, w) of NumPy |
| [`VatexSource`] | VATEX: `VIDEO.npy` of shape (1, T, D) |
"""

import binascii
import math
import pickle
import warnings
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import DataError, naming_damage
from .sources import Entry, FeatureRecord, FileSource, ListedSource, Source, files_in

if TYPE_CHECKING:
    import h5py

TSV_FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
MAX_FEATURE = 1e10
"""Largest plausible feature: numbers of float64 that are read as float32 are far larger."""
FEATURES, BOXES, GRIDS = "_features", "_boxes", "_grids"
"""Endings of the names of arrays in HDF5 files."""
COCOBU_KEY = "feat"
COCOBU_PARTS = ("_att", "_box", "_fc")
FILES_LOOKED_AT = 100


class TsvSource(Source):
    """A file of bottom-up attention.

    Args:
        path: of the file.

    Raises:
        DataError: it is empty.
    """

    unit = "bytes"
    is_numbered = True

    def __init__(self, path: Path) -> None:
        self.path, self.total = path, path.stat().st_size
        if not self.total:
            raise DataError(f"{path} is empty; get it again.")

    def entries(self, start: int = 0) -> Iterator[Entry]:
        number = 0
        with open(self.path, "rb") as file:
            while line := file.readline():
                number += 1
                if file.tell() > start and not line.isspace():
                    where = f"{self.path}, line {number}"
                    yield Entry(None, where, file.tell(), partial(parse_line, line, where))


def parse_line(line: bytes, where: str) -> tuple[str, FeatureRecord]:
    """Returns the image id and the record of a line; raises a DataError for a damaged one."""
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(TSV_FIELDS):
        raise DataError(f"{where} has {len(fields)} fields; it must have {len(TSV_FIELDS)}: {', '.join(TSV_FIELDS)}.")
    image_id, width, height, num_boxes = map(int, fields[:4])
    where = f"{where} (image {image_id})"
    with naming_damage(where):
        boxes, features = (np.frombuffer(binascii.a2b_base64(text, strict_mode=True), "<f4") for text in fields[4:])
    if boxes.size != num_boxes * 4 or num_boxes < 1:
        raise DataError(f"{where}: boxes holds {boxes.size} numbers, but num_boxes is {num_boxes}.")
    with np.errstate(invalid="ignore"):
        if (largest := np.abs(features).max()) > MAX_FEATURE and np.isfinite(largest):
            raise DataError(f"{where}: features reach {largest:g}; they must be stored as float32.")
    return str(image_id), FeatureRecord(features.reshape(num_boxes, -1), boxes.reshape(-1, 4), (width, height))


class Hdf5Source(ListedSource):
    """An HDF5 file with arrays of each image, named by its id and a suffix.

    Args:
        path: path of the file.
    """

    suffixes: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.file = open_hdf5(path)
        self.keys = set(self.file)
        names = {key.removesuffix(suffix) for suffix in self.suffixes for key in self.keys if key.endswith(suffix)}
        if not names:
            raise DataError(f"{path} has no arrays named {' or '.join(f'ID{suffix}' for suffix in self.suffixes)}.")
        super().__init__(path, [(name, name) for name in sorted(names)])

    def where(self, key: str) -> str:
        return f"{self.path}, {key}"

    def close(self) -> None:
        self.file.close()

    def read_array(self, key: str) -> np.ndarray:
        """Reads an array that is stored in the file itself, and whole: HDF5 reads a missing part as zeros."""
        import h5py

        link = self.file.get(key, getlink=True)
        dataset = self.file[key] if isinstance(link, h5py.HardLink) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
            raise DataError(f"{self.where(key)} is no array that is stored in this file.")
        if dataset.chunks is None:
            is_whole = dataset.id.get_storage_size() >= dataset.nbytes
        else:
            sides = zip(dataset.shape, dataset.chunks, strict=True)
            is_whole = dataset.id.get_num_chunks() >= math.prod(-(-size // side) for size, side in sides)
        if not is_whole:
            raise DataError(f"{self.where(key)} is stored in part only; get the file again.")
        return dataset[:]


def open_hdf5(path: Path) -> "h5py.File":
    try:
        import h5py
    except ImportError:
        raise DataError(
            f"{path} is an HDF5 file, which the package h5py reads; install it with pip install 'hf-ngsan[features]'."
        ) from None
    return h5py.File(path, "r")


def has_keys(path: Path, suffix: str) -> bool:
    """Returns whether an HDF5 file has arrays with names of this suffix."""
    with open_hdf5(path) as file:
        return any(key.endswith(suffix) for key in file)


class M2Source(Hdf5Source):
    suffixes = (FEATURES, BOXES)

    def read_record(self, key: str) -> FeatureRecord:
        features = self.read_array(f"{key}{FEATURES}")
        return FeatureRecord(features, self.read_array(f"{key}{BOXES}") if self.has_boxes else None)

    @cached_property
    def has_boxes(self) -> bool:
        return any(key.endswith(BOXES) for key in self.keys)


class GridSource(Hdf5Source):
    """Square grids."""

    suffixes = (GRIDS,)

    def read_record(self, key: str) -> FeatureRecord:
        features = self.read_array(f"{key}{GRIDS}")
        side = math.isqrt(len(features))
        if side**2 != len(features):
            raise DataError(f"{self.where(key)}{GRIDS} has {len(features)} cells, which make no square grid.")
        return FeatureRecord(features, grid=(side, side))


def is_m2(path: Path) -> bool:
    return has_keys(path, FEATURES)


def is_grid(path: Path) -> bool:
    return has_keys(path, GRIDS)


class CocobuSource(ListedSource):
    """Features, with boxes if there is a folder of boxes. `NAME_fc`, the means of the features, is not read.

    Args:
        path: the parent folder, `NAME_att` itself, or one file of `NAME_att` or `NAME_box`.
    """

    def __init__(self, path: Path) -> None:
        self.features, self.boxes = folders_of_cocobu(path)
        names = [path.stem] if path.is_file() else [Path(key).stem for key in files_in(self.features, ".npz")]
        super().__init__(path, [(name, name) for name in names])

    def where(self, key: str) -> str:
        return f"{self.features / key}.npz"

    def read_record(self, key: str) -> FeatureRecord:
        with np.load(self.where(key), allow_pickle=False) as arrays:
            features = arrays[COCOBU_KEY]
        if features.ndim == 3:
            return FeatureRecord(features.reshape(-1, features.shape[-1]), grid=features.shape[:2])
        return FeatureRecord(features, None if self.boxes is None else read_npy(self.boxes / f"{key}.npy"))


def folders_of_cocobu(path: Path) -> tuple[Path, Path | None]:
    """Returns the folders of features and of boxes; the latter may be None."""
    folder = path if path.is_dir() else path.parent
    ending = next((part for part in COCOBU_PARTS if folder.name.endswith(part)), None)
    if ending:
        features = folder.with_name(f"{folder.name.removesuffix(ending)}_att")
    else:
        inside = sorted(place for place in folder.glob("*_att") if place.is_dir()) or [folder]
        if len(inside) > 1:
            raise DataError(f"{folder} has the folders {inside[0].name} and {inside[1].name}; give one of them.")
        features = inside[0]
    if not features.is_dir():
        raise DataError(f"{features} is missing; it must hold the features as ID.npz.")
    boxes = features.with_name(f"{features.name.removesuffix('_att')}_box")
    return features, boxes if features.name.endswith("_att") and boxes.is_dir() else None


def is_cocobu(path: Path) -> bool:
    """Returns whether a file is in one of these folders, or has their key."""
    return path.parent.name.endswith(COCOBU_PARTS) or (path.suffix == ".npz" and COCOBU_KEY in keys_of_npz(path))


class VqaSource(FileSource):
    """Files of regions. The number of boxes decides whether `x` is (D, n) or (n, D)."""

    suffix = ".npz"

    def read_record(self, key: str) -> FeatureRecord:
        where = self.where(key)
        with np.load(self.path / key, allow_pickle=False) as arrays:
            features, boxes = arrays["x"], arrays["bbox"]
            size = int(arrays["image_w"].item()), int(arrays["image_h"].item())
            number = int(arrays["num_bbox"].item()) if "num_bbox" in arrays else len(boxes)
        if len(boxes) != number or features.ndim != 2 or number not in features.shape:
            raise DataError(
                f"{where}: x has shape {features.shape} and bbox {boxes.shape}, which do not fit {number} boxes."
            )
        is_square = features.shape[0] == features.shape[1]
        columns_are_boxes = self.columns_are_boxes if is_square else features.shape[1] == number
        if columns_are_boxes is None:
            raise DataError(
                f"{where}: x has shape {features.shape}, and no other file shows whether boxes are rows or columns."
            )
        return FeatureRecord(features.T if columns_are_boxes else features, boxes, size)

    @cached_property
    def columns_are_boxes(self) -> bool | None:
        """Whether `x` is (D, n), decided by the first file with D != n; None without such a file."""
        for _, key in self.names[:FILES_LOOKED_AT]:
            with np.load(self.path / key, allow_pickle=False) as arrays:
                (first, last), number = arrays["x"].shape, len(arrays["bbox"])
            if first != last and number in (first, last):
                return last == number
        return None


def is_vqa(path: Path) -> bool:
    return "x" in keys_of_npz(path)


class TensorSource(FileSource):
    """Tensors in either of torch's file formats."""

    suffix = ".pth"

    def read_record(self, key: str) -> FeatureRecord:
        import torch

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about old formats
                tensor = torch.load(self.path / key, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # its message explains how to load the file anyway
            raise DataError(f"{self.where(key)} holds other objects than tensors, which are never loaded.") from None
        features = tensor.detach().float().numpy() if tensor.dtype == torch.bfloat16 else tensor.detach().numpy()
        if features.ndim != 4 or features.shape[0] != 1:
            raise DataError(
                f"{self.where(key)} has shape {features.shape}; it must be (1, feature dimension, height, width)."
            )
        return record_of_map(features[0])


class ArraySource(FileSource):
    """Arrays `(D, h, w)` of NumPy."""

    suffix = ".npy"

    def read_record(self, key: str) -> FeatureRecord:
        return record_of_map(read_npy(self.path / key))


def record_of_map(features: np.ndarray) -> FeatureRecord:
    dimension, height, width = features.shape
    return FeatureRecord(features.reshape(dimension, height * width).T, grid=(height, width))


def is_feature_map(path: Path) -> bool:
    shape = read_npy(path).shape
    return len(shape) == 3 and shape[0] != 1


class VatexSource(FileSource):
    """Files of video features. Names of videos are no numbers, so their places become ids."""

    suffix = ".npy"
    is_numbered = False

    def read_record(self, key: str) -> FeatureRecord:
        features = read_npy(self.path / key)
        if features.ndim != 3 or features.shape[0] != 1:
            raise DataError(f"{self.where(key)} has shape {features.shape}; it must be (1, frames, feature dimension).")
        return FeatureRecord(features[0])


def is_vatex(path: Path) -> bool:
    shape = read_npy(path).shape
    return len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)


def read_npy(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def keys_of_npz(path: Path) -> set[str]:
    with np.load(path, allow_pickle=False) as arrays:
        return set(arrays.files)
