"""The registry of third-party feature formats, and the detection of the format of a file or folder."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ..errors import DataError, naming_damage
from ..images import OwnFiles

if TYPE_CHECKING:
    from .layouts import FeatureSource, VisualRecord

BOX_ORDERS = ("xyxy", "xywh", "cxcywh")  # corners; upper left corner or centre, with width and height
FILES_LOOKED_AT = 4  # number of files per folder that are examined to detect the format
FOLDERS_LOOKED_AT = 16


@dataclass(frozen=True)
class FeatureFormat:
    """A layout of feature files.

    Attributes:
        name: value of `hf-ngsan convert --from`.
        summary: one-line description of the files.
        suffixes: lower-case suffixes of the file names, such as `(".npz",)`.
        read: reads the file of one image, as `read(path) -> VisualRecord`. The file has the first suffix, and its stem
            names the image.
        open_file: a subclass of [`FeatureSource`] instead of `read`, for files with many images.
        recognises: returns whether a file with one of the suffixes has this format; if None, all such files do.

    Each function may be a string `"module:name"`, which is imported on first use.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    read: "str | Callable[[Path], VisualRecord]" = ""
    open_file: "str | Callable[[Path], FeatureSource]" = ""
    recognises: str | Callable[[Path], bool] = ""

    def open(self, path: Path) -> "FeatureSource":
        from .layouts import FileSource

        with naming_damage(str(path)):
            if self.open_file:
                return resolved(self.open_file)(path)
            return FileSource(path, self.suffixes[0], resolved(self.read))

    def fits(self, file: Path) -> bool:
        if file.suffix.lower() not in self.suffixes:
            return False
        with naming_damage(str(file)):
            return not self.recognises or resolved(self.recognises)(file)


def resolved(function: str | Callable) -> Callable[[Path], Any]:
    return resolve_name(function) if isinstance(function, str) else function


FEATURE_FORMATS: dict[str, FeatureFormat] = {}


def register_format(layout: FeatureFormat) -> None:
    """Adds a format of feature files for `hf-ngsan convert` and `inspect`; raises a DataError for an existing name."""
    if FEATURE_FORMATS.get(layout.name, layout) != layout:
        raise DataError(f"A format {layout.name!r} already exists; choose another name.")
    FEATURE_FORMATS[layout.name] = layout


HERE = "hf_ngsan.data.formats.layouts:"
HDF5 = (".hdf5", ".h5")
OPEN_HDF5 = f"{HERE}Hdf5Source"
TSV = "bottom-up attention: six tab-separated fields, boxes and features in base64"
M2 = "Meshed-Memory Transformer: ID_features and ID_boxes"
VQA = "MCAN, OpenVQA and bottom-up-attention.pytorch: x, bbox, image_w, image_h in ID.npz"
COCOBU = "ImageCaptioning.pytorch: NAME_att/ID.npz and NAME_box/ID.npy"
PTH = "grid-feats-vqa: a tensor (1, D, h, w) in ID.pth"
NPY = "an array (D, h, w) in ID.npy"
VATEX = "VATEX: an array (1, T, D) in VIDEO.npy"
for built_in in (
    FeatureFormat("bottom-up-tsv", TSV, (".tsv",), open_file=f"{HERE}TsvSource"),
    FeatureFormat("m2-hdf5", M2, HDF5, open_file=OPEN_HDF5, recognises=f"{HERE}is_m2"),
    FeatureFormat("grid-hdf5", "RSTNet: ID_grids", HDF5, open_file=OPEN_HDF5, recognises=f"{HERE}is_grid"),
    FeatureFormat("cocobu", COCOBU, (".npz", ".npy"), f"{HERE}read_cocobu", recognises=f"{HERE}is_cocobu"),
    FeatureFormat("vqa-npz", VQA, (".npz",), f"{HERE}read_vqa", recognises=f"{HERE}is_vqa"),
    FeatureFormat("grid-pth", PTH, (".pth",), f"{HERE}read_tensor"),
    FeatureFormat("grid-npy", NPY, (".npy",), f"{HERE}read_map", recognises=f"{HERE}is_map"),
    FeatureFormat("vatex", VATEX, (".npy",), f"{HERE}read_video_features", recognises=f"{HERE}is_video"),
):
    register_format(built_in)


def open_sources(path: Path, name: str | None = None) -> list["FeatureSource"]:
    """Opens the feature files at a path; the format is detected if `name` is None."""
    from .layouts import files_in

    if not path.exists():
        raise DataError(f"{path} does not exist; give a file or folder of features.")
    if name is not None and name not in FEATURE_FORMATS:
        raise DataError(f"Unknown format {name!r}; choose from {', '.join(FEATURE_FORMATS)}.")
    layout = recognise(path) if name is None else FEATURE_FORMATS[name]
    files = [path / key for key in files_in(path, *layout.suffixes)] if layout.open_file else [path]
    sources = [layout.open(file) for file in files]
    if not sources or not all(source.total for source in sources):
        raise DataError(f"{path} has no files of the format {layout.name} ({', '.join(layout.suffixes)}).")
    return sources


def recognise(path: Path) -> FeatureFormat:
    """Detects the format of a file or folder; raises a DataError for unknown or several formats."""
    examples: dict[str, Path] = {}
    problem: DataError | None = None
    for file in some_files(path):
        try:
            for layout in FEATURE_FORMATS.values():
                if layout.fits(file):
                    examples.setdefault(layout.name, file)
                    if layout.name == "cocobu":  # the name of the folder distinguishes it from other formats
                        break
        except DataError as error:
            problem = error
    if len(examples) > 1:
        listed = ", ".join(f"{name} ({file})" for name, file in examples.items())
        raise DataError(f"{path} may have several formats: {listed}; choose one with --from, or give only one of them.")
    if examples:
        return FEATURE_FORMATS[next(iter(examples))]
    raise problem or DataError(
        f"The format of {path} is unknown; files of known formats end in {', '.join(sorted(known_suffixes()))}. Choose "
        f"a format with --from: {', '.join(FEATURE_FORMATS)}. Images in tar or Parquet files are read as images:{path}."
    )


def known_suffixes() -> set[str]:
    return {suffix for layout in FEATURE_FORMATS.values() for suffix in layout.suffixes}


def some_files(path: Path) -> Iterator[Path]:
    """Yields a few feature files of every folder below a folder, or the single file."""
    places = [("", [], [str(path)])] if path.is_file() else os.walk(path)
    own_files, suffixes = OwnFiles(path, links=path.is_file()), known_suffixes()
    for folder, folders, files in islice(places, FOLDERS_LOOKED_AT):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        named = (Path(folder) / name for name in sorted(files) if not name.startswith("."))
        some = islice((file for file in named if file.suffix.lower() in suffixes), FILES_LOOKED_AT)
        yield from (Path(own_files.find(os.path.abspath(file), str(path))) for file in some)
