"""Sources of images with captions: tar files of WebDataset, and Parquet files."""

from pathlib import Path, PurePosixPath

import datasets

from ..coco_files import number_of
from ..errors import DataError
from ..images import load_images
from ..images.files import decode_image
from ..images.sources import column_of_splits, open_source
from ..images.tar_files import TAR_SUFFIXES, TarFile
from .sources import ImageRecord, ListedSource, files_in


class TarSource(ListedSource):
    """The samples of a tar file, or of all tar files in a folder.

    An image is named by the last part of its key. Where two images of the source would have one name, or one number,
    all are named by their whole keys, and where these are not unique either, by file and key.

    Args:
        path: path of the file or folder.

    Raises:
        DataError: a file cannot be read, see [`~hf_ngsan.data.images.tar_files.TarFile`].
    """

    def __init__(self, path: Path) -> None:
        folder = path if path.is_dir() else path.parent
        self.tars = [TarFile(path / name) for name in files_in(path, *TAR_SUFFIXES)]
        self.places = [(tar, key) for tar in self.tars for key in tar.samples]
        candidates = (
            [PurePosixPath(key).name for _, key in self.places],
            [key for _, key in self.places],
            [(tar.path.relative_to(folder) / key).as_posix() for tar, key in self.places],
        )
        unique = (names for names in candidates if len({number_of(name) or name for name in names}) == len(names))
        super().__init__(path, [(name, str(place)) for place, name in enumerate(next(unique, candidates[-1]))])

    @property
    def files(self) -> list[Path]:
        return [tar.path for tar in self.tars]

    def has_captions(self) -> bool:
        for tar, key in self.places:
            try:
                if tar.captions_of(key):
                    return True
            except DataError:  # of a sample that is refused when it is read
                continue
        return False

    def where(self, key: str) -> str:
        tar, sample = self.places[int(key)]
        return f"{tar.name}, {sample}"

    def read_record(self, key: str) -> ImageRecord:
        tar, sample = self.places[int(key)]
        content, name = tar.image_of(sample)
        return ImageRecord(content, PurePosixPath(name).name, tar.captions_of(sample), image_size(content))


class ParquetSource(ListedSource):
    """A Parquet file with images and captions in any columns that `images:SOURCE` recognises.

    Args:
        path: of the file.

    Raises:
        DataError: it cannot be read, or has no images.
    """

    def __init__(self, path: Path) -> None:
        self.parts = []
        parts = open_source(str(path), None)
        column = column_of_splits(parts)
        for split in dict.fromkeys(column or parts):
            rows = load_images(str(path), split).with_format(None)
            rows = rows.cast_column("image", datasets.Image(decode=False))
            self.parts.append((None if column is None and split == "train" else split, rows))
        keys = [f"{part}/{row}" for part, (_, rows) in enumerate(self.parts) for row in range(len(rows))]
        ids = (str(image_id) for _, rows in self.parts for image_id in rows["image_id"])
        super().__init__(path, list(zip(ids, keys, strict=True)))

    def has_captions(self) -> bool:
        return any("captions" in rows.column_names for _, rows in self.parts)

    def has_split(self) -> bool:
        return any(split is not None for split, _ in self.parts)

    def where(self, key: str) -> str:
        return f"{self.path}, row {key.partition('/')[2]}"

    def read_record(self, key: str) -> ImageRecord:
        part, number = map(int, key.split("/"))
        split, rows = self.parts[part]
        row = rows[number]
        content, path = row["image"]["bytes"], row["image"]["path"]
        if content is None:
            raise DataError(f"{self.where(key)} has the path of an image, {path}, and not the image itself.")
        name = Path(row.get("file_name") or path or "").name
        return ImageRecord(content, name, tuple(row.get("captions", ())), image_size(content), split)


def image_size(content: bytes) -> tuple[int, int]:
    """Returns the width and height of an image, upright; raises an exception if it cannot be decoded."""
    return decode_image({"bytes": content, "path": None}, datasets.Image()).size  # type: ignore[union-attr]
