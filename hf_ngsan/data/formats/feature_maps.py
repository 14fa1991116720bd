"""Feature maps, one file an image: tensors `(1, D, h, w)` of grid-feats-vqa, arrays `(D, h, w)` of NumPy."""

import io
import math
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np

from ..errors import DataError
from .arrays import naming_damage, read_npy_file, refuse_empty, refuse_large, shape_of_npy_file
from .record import FeatureRecord, FileSource


class TensorSource(FileSource):
    """Tensors in either of torch's file formats."""

    suffix = ".pth"

    def read_record(self, key: str) -> FeatureRecord:
        where = self.where(key)
        features = read_tensor(self.path / key, where)
        if features.ndim != 4 or features.shape[0] != 1:
            raise DataError(f"{where} has shape {features.shape}; it must be (1, feature dimension, height, width).")
        return record_of_map(features[0], where)


class ArraySource(FileSource):
    """Arrays `(D, h, w)` of NumPy."""

    suffix = ".npy"

    def read_record(self, key: str) -> FeatureRecord:
        features = read_npy_file(self.path / key)
        if features.ndim != 3:
            raise DataError(
                f"{self.where(key)} has shape {features.shape}; it must be (feature dimension, height, width)."
            )
        return record_of_map(features, self.where(key))


def record_of_map(features: np.ndarray, where: str) -> FeatureRecord:
    refuse_empty(features, where)
    dimension, height, width = features.shape
    return FeatureRecord(features.reshape(dimension, -1).T, grid=(height, width))


def read_tensor(path: Path, where: str) -> np.ndarray:
    """Reads the only tensor of a file of `torch.save`; nothing but tensors is unpickled.

    Raises:
        DataError: the file holds something else, is compressed or damaged, or claims more numbers than it has bytes.
    """
    import torch

    with naming_damage(where), warnings.catch_warnings():
        size = path.stat().st_size
        refuse_large(size, where)
        content = path.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if sum(info.file_size for info in archive.infolist()) > size:  # torch compresses nothing
                    raise DataError(f"{where} unpacks to more than its {size} bytes, as no file of torch.save does.")
        try:
            warnings.simplefilter("ignore")  # about old formats
            tensor = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # its message explains how to load the file anyway
            raise DataError(
                f"{where} holds other objects than tensors, which are never loaded, or is damaged; get it again."
            ) from None
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise DataError(f"{where} holds {type(tensor).__name__!r} and not one dense tensor.")
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise DataError(f"{where} is of type {tensor.dtype}; it must be floating point numbers.")
        if math.prod(tensor.shape) * tensor.element_size() > size:
            raise DataError(f"{where} claims the shape {tuple(tensor.shape)}, for which it is too short.")
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def is_feature_map(path: Path) -> bool:
    """Returns whether an .npy file holds a feature map, by its shape."""
    shape = shape_of_npy_file(path)
    return len(shape) == 3 and shape[0] != 1
