"""Video features of VATEX: a file `VIDEO.npy` of shape (1, T, D) for each video."""

from pathlib import Path

from ..errors import DataError
from .arrays import read_npy_file, shape_of_npy_file
from .record import FeatureRecord, FileSource


class VatexSource(FileSource):
    """Files of video features. Names of videos are no numbers, so their places become ids."""

    suffix = ".npy"
    is_numbered = False

    def read_record(self, key: str) -> FeatureRecord:
        features = read_npy_file(self.path / key)
        if features.ndim != 3 or features.shape[0] != 1:
            raise DataError(f"{self.where(key)} has shape {features.shape}; it must be (1, frames, feature dimension).")
        return FeatureRecord(features[0])


def is_vatex(path: Path) -> bool:
    shape = shape_of_npy_file(path)
    return len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
