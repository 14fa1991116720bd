"""The folders of ImageCaptioning.pytorch: `NAME_att/ID.npz` with the key `feat`, and `NAME_box/ID.npy`."""

from pathlib import Path

from ..errors import DataError
from .arrays import keys_of_npz_file, opened_npz, read_npy_file, refuse_empty
from .record import FeatureRecord, ListedSource, files_in

KEY = "feat"
PARTS = ("_att", "_box", "_fc")


class CocobuSource(ListedSource):
    """Features, with boxes if there is a folder of boxes. `NAME_fc`, the means of the features, is not read.

    Args:
        path: the parent folder, `NAME_att` itself, or one file of `NAME_att` or `NAME_box`.
    """

    def __init__(self, path: Path) -> None:
        self.features, self.boxes = folders_of(path)
        names = [path.stem] if path.is_file() else [Path(key).stem for key in files_in(self.features, ".npz")]
        super().__init__(path, [(name, name) for name in names])

    def where(self, key: str) -> str:
        return f"{self.features / key}.npz"

    def read_record(self, key: str) -> FeatureRecord:
        with opened_npz(self.features / f"{key}.npz") as arrays:
            features = arrays.read(KEY)
        refuse_empty(features, self.where(key))
        grid = features.shape[:2] if features.ndim == 3 else None
        features = features.reshape(-1, features.shape[-1]) if grid else features
        if self.boxes is None or grid:
            return FeatureRecord(features, grid=grid)
        file = self.boxes / f"{key}.npy"
        if not file.is_file():
            raise DataError(f"{self.where(key)} has no boxes: {file} is missing.")
        return FeatureRecord(features, read_npy_file(file))


def folders_of(path: Path) -> tuple[Path, Path | None]:
    """Returns the folders of features and of boxes; the latter may be None."""
    folder = path if path.is_dir() else path.parent
    ending = next((part for part in PARTS if folder.name.endswith(part)), None)
    if ending:
        features = folder.with_name(f"{folder.name.removesuffix(ending)}_att")
    else:
        found = sorted(one for one in folder.glob("*_att") if one.is_dir()) or [folder]
        if len(found) > 1:
            raise DataError(f"{folder} has the folders {found[0].name} and {found[1].name}; give one of them.")
        features = found[0]
    if not features.is_dir():
        raise DataError(f"{features} is missing; it must hold the features as ID.npz.")
    boxes = features.with_name(f"{features.name.removesuffix('_att')}_box")
    return features, boxes if features.name.endswith("_att") and boxes.is_dir() else None


def is_cocobu(file: Path) -> bool:
    """Returns whether a file is one of these folders."""
    if file.parent.name.endswith(PARTS):
        return True
    return file.suffix == ".npz" and KEY in keys_of_npz_file(file)
