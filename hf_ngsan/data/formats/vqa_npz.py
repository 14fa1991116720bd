"""Regions in .npz files: `x` is (D, n) in files of MCAN and OpenVQA, (n, D) in those of bottom-up-attention.pytorch."""

from functools import cached_property
from pathlib import Path

from ..errors import DataError
from .arrays import keys_of_npz_file, opened_npz
from .record import FeatureRecord, FileSource

FILES_LOOKED_AT = 100


class VqaSource(FileSource):
    """Files of regions. The number of boxes decides whether `x` is (D, n) or (n, D)."""

    suffix = ".npz"

    def read_record(self, key: str) -> FeatureRecord:
        where = self.where(key)
        with opened_npz(self.path / key) as arrays:
            features, boxes = arrays.read("x"), arrays.read("bbox")
            size = arrays.integer("image_w"), arrays.integer("image_h")
            number = arrays.integer("num_bbox") if "num_bbox" in arrays.keys else len(boxes)
        if min(size) < 1 or max(size) >= 2**31:
            raise DataError(f"{where}: the image is {size[0]} x {size[1]} pixels; image_w and image_h are wrong.")
        if boxes.shape != (number, 4):
            raise DataError(f"{where}: bbox has shape {boxes.shape}, but num_bbox is {number}.")
        if features.ndim != 2 or number not in features.shape:
            raise DataError(f"{where}: x has shape {features.shape}, which does not fit {number} boxes.")
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
            try:
                with opened_npz(self.path / key) as arrays:
                    shape, number = arrays.read("x").shape, len(arrays.read("bbox"))
            except (DataError, TypeError):
                continue
            if len(shape) == 2 and shape[0] != shape[1] and number in shape:
                return shape[1] == number
        return None


def is_vqa(path: Path) -> bool:
    return "x" in keys_of_npz_file(path)
