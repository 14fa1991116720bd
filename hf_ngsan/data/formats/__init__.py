"""The registry of third-party feature formats; recognises the format of a file or folder."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DataError, naming_damage
from ..images import OwnFiles

if TYPE_CHECKING:
    from .layouts import Source

BOX_ORDERS = ("xyxy", "xywh", "cxcywh")  # corners; the upper left corner, or the centre, with width and height
FILES_LOOKED_AT = 4  # files of each folder that are examined to recognise their format
FOLDERS_LOOKED_AT = 16


class FeatureFormat(NamedTuple):
    """One layout of feature files: `source` is a class of [`layouts`] for a file of many images, or a function that
    reads the file of one, and `recognises` a function that decides where the suffix is not enough."""

    name: str
    summary: str
    suffixes: tuple[str, ...]
    source: str
    recognises: str = ""

    @property
    def is_file(self) -> bool:
        return not self.source.startswith("read_")

    def open(self, path: Path) -> "Source":
        from . import layouts

        source = getattr(layouts, self.source)
        with naming_damage(str(path)):
            return source(path) if self.is_file else layouts.FileSource(path, self.suffixes[0], source)

    def fits(self, file: Path) -> bool:
        from . import layouts

        if file.suffix.lower() not in self.suffixes:
            return False
        with naming_damage(str(file)):
            return not self.recognises or getattr(layouts, self.recognises)(file)


HDF5 = (".hdf5", ".h5")
TSV = "bottom-up attention: six tab-separated fields, boxes and features in base64"
VQA = "MCAN, OpenVQA and bottom-up-attention.pytorch: x, bbox, image_w, image_h in ID.npz"
COCOBU = "ImageCaptioning.pytorch: NAME_att/ID.npz and NAME_box/ID.npy"
FORMATS = {
    layout.name: layout
    for layout in (
        FeatureFormat("bottom-up-tsv", TSV, (".tsv",), "TsvSource"),
        FeatureFormat("m2-hdf5", "Meshed-Memory Transformer: ID_features and ID_boxes", HDF5, "Hdf5Source", "is_m2"),
        FeatureFormat("grid-hdf5", "RSTNet: ID_grids", HDF5, "Hdf5Source", "is_grid"),
        FeatureFormat("cocobu", COCOBU, (".npz", ".npy"), "read_cocobu", "is_cocobu"),
        FeatureFormat("vqa-npz", VQA, (".npz",), "read_vqa", "is_vqa"),
        FeatureFormat("grid-pth", "grid-feats-vqa: a tensor (1, D, h, w) in ID.pth", (".pth",), "read_tensor"),
        FeatureFormat("grid-npy", "an array (D, h, w) in ID.npy", (".npy",), "read_map", "is_map"),
        FeatureFormat("vatex", "VATEX: an array (1, T, D) in VIDEO.npy", (".npy",), "read_video", "is_video"),
    )
}
SUFFIXES = {suffix for layout in FORMATS.values() for suffix in layout.suffixes}


def open_sources(path: Path, name: str | None = None) -> list["Source"]:
    """Opens the feature files that a path names, in a format that is recognised if its name is None."""
    from .layouts import files_in

    if not path.exists():
        raise DataError(f"{path} does not exist; give a file or folder of features.")
    if name is not None and name not in FORMATS:
        raise DataError(f"There is no format {name!r}; there are {', '.join(FORMATS)}.")
    layout = recognise(path) if name is None else FORMATS[name]
    files = [path / key for key in files_in(path, *layout.suffixes)] if layout.is_file else [path]
    sources = [layout.open(file) for file in files]
    if not sources or not all(source.total for source in sources):
        raise DataError(f"{path} holds no files of the format {layout.name} ({', '.join(layout.suffixes)}).")
    return sources


def recognise(path: Path) -> FeatureFormat:
    """Returns the format of a file or folder; raises a DataError for no format, or files of several formats."""
    examples: dict[str, Path] = {}
    problem: DataError | None = None
    for file in some_files(path):
        try:
            for layout in FORMATS.values():
                if layout.fits(file):
                    examples.setdefault(layout.name, file)
                    if layout.name == "cocobu":  # the name of a folder decides between it and others of such files
                        break
        except DataError as error:
            problem = error
    if len(examples) > 1:
        listed = ", ".join(f"{name} ({file})" for name, file in examples.items())
        raise DataError(f"{path} may be of several formats: {listed}; name one with --from, or give one of them alone.")
    if examples:
        return FORMATS[next(iter(examples))]
    raise problem or DataError(
        f"{path} has no known format; their files end in {', '.join(sorted(SUFFIXES))}. Name one with --from:"
        f" {', '.join(FORMATS)}. Images in tar or Parquet files are read as images:{path}."
    )


def some_files(path: Path) -> Iterator[Path]:
    """Yields a few files of features of every folder within a folder, or the single file."""
    places = [("", [], [str(path)])] if path.is_file() else os.walk(path)
    own = OwnFiles(path, links=path.is_file())
    for folder, folders, files in islice(places, FOLDERS_LOOKED_AT):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        named = (Path(folder) / name for name in sorted(files) if not name.startswith("."))
        some = islice((file for file in named if file.suffix.lower() in SUFFIXES), FILES_LOOKED_AT)
        yield from (Path(own.find(os.path.abspath(file), str(path))) for file in some)
