"""Parquet files of images with captions, in any columns that `images:SOURCE` recognises."""

from pathlib import Path

import datasets

from ..errors import DataError
from ..images.loading import load_images
from ..images.sources import column_of_splits, open_source
from .arrays import naming_damage
from .record import ImageRecord, ListedSource, image_size


class ParquetSource(ListedSource):
    """A Parquet file.

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
            rows = load_images(str(path), split)
            images = rows.select_columns("image").with_format(None)
            images = images.cast_column("image", datasets.Image(decode=False))
            others = rows.select_columns([one for one in rows.column_names if one != "image"]).with_format(None)
            self.parts.append((None if column is None and split == "train" else split, images, others))
        keys = [f"{part}/{row}" for part, (_, images, _) in enumerate(self.parts) for row in range(len(images))]
        ids = (str(image_id) for _, _, others in self.parts for image_id in others["image_id"])
        super().__init__(path, list(zip(ids, keys, strict=True)))

    def has_captions(self) -> bool:
        return any("captions" in others.column_names for _, _, others in self.parts)

    def has_split(self) -> bool:
        return any(split is not None for split, _, _ in self.parts)

    def where(self, key: str) -> str:
        return f"{self.path}, row {key.partition('/')[2]}"

    def read_record(self, key: str) -> ImageRecord:
        part, row = map(int, key.split("/"))
        split, images, others = self.parts[part]
        where = self.where(key)
        with naming_damage(where):
            stored, known = images[row]["image"], others[row]
            content = stored["bytes"]
            if content is None:
                raise DataError(f"{where} has the path of an image, {stored['path']}, and not the image itself.")
        captions = tuple(known.get("captions", ()))
        name = known.get("file_name") or stored["path"] or ""
        return ImageRecord(content, Path(name).name, captions, image_size(content, where), split)
