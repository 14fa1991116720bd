"""Arrays of third-party files: no pickles are loaded, and no array is larger than its file can hold."""

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from ..errors import DataError, reason_of

MAX_ARRAY_BYTES = 2**28
"""Of one image, 256 MiB: 100 regions of 2048 float32 numbers take less than 1 MiB."""
FREE_ARRAY_BYTES, MAX_COMPRESSION = 2**24, 100
"""An array of more than 16 MiB may be 100 times larger than its compressed bytes; features compress by 2 to 20."""
HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@contextmanager
def naming_damage(where: str) -> Iterator[None]:
    """Turns any error inside the `with` block into a DataError that names the damaged file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = "it claims more memory than there is" if isinstance(error, MemoryError) else reason_of(error)
        raise DataError(
            f"{where} cannot be read ({reason[:200]}); it may be cut or damaged: get it again or leave it out."
        ) from error


def check_array(shape: Sequence[int], dtype: np.dtype, where: str, kinds: str = "f") -> int:
    """Returns the size in bytes of an array by its header, before it is read.

    Raises:
        DataError: the type is not of these kinds, or the array takes more than `MAX_ARRAY_BYTES`.
    """
    if dtype.hasobject:
        raise DataError(f"{where} holds pickled objects, which are never loaded; save it as an array of numbers.")
    if dtype.kind not in kinds or dtype.itemsize > 8:
        raise DataError(f"{where} is of type {dtype}; it must be {'floating point' if kinds == 'f' else ''} numbers.")
    num_bytes = math.prod(shape) * dtype.itemsize
    refuse_large(num_bytes, where)
    return num_bytes


def refuse_large(num_bytes: int, where: str, limit: int = MAX_ARRAY_BYTES) -> None:
    """Raises a DataError for more bytes than an image may take."""
    if num_bytes > limit:
        raise DataError(f"{where} takes {num_bytes / 2**20:.0f} MiB; it may take {limit >> 20} MiB at most.")


def refuse_empty(array: np.ndarray, where: str) -> None:
    """Raises a DataError for an array without numbers."""
    if not array.size:
        raise DataError(f"{where} has shape {array.shape}, which is empty.")


def refuse_inflation(num_bytes: int, stored: int, where: str) -> None:
    """Raises a DataError for an array that is too large, or far larger than its compressed bytes."""
    refuse_large(num_bytes, where)
    if num_bytes > max(FREE_ARRAY_BYTES, stored * MAX_COMPRESSION):
        raise DataError(
            f"{where} unpacks from {stored} bytes to {num_bytes / 2**20:.0f} MiB, as no features do; get it again or"
            " leave it out."
        )


def read_header(file: IO[bytes], where: str, kinds: str = "f") -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Reads the header of an .npy file.

    Returns:
        Shape, whether the order is Fortran's, type, and bytes of the numbers.
    """
    with naming_damage(where):
        version = npy.read_magic(file)
        if version not in HEADER_READERS:
            raise DataError(f"{where} has version {version} of the .npy format; save it with np.save.")
        shape, columns_first, dtype = HEADER_READERS[version](file)
    return shape, columns_first, dtype, check_array(shape, dtype, where, kinds)


def read_npy(file: IO[bytes], size: int, where: str, kinds: str = "f") -> np.ndarray:
    """Reads an .npy file of known size.

    Raises:
        DataError: the number of bytes differs from the header, or the array has no numbers.
    """
    shape, columns_first, dtype, num_bytes = read_header(file, where, kinds)
    with naming_damage(where):
        held = size - file.tell()
        if held != num_bytes:
            raise DataError(
                f"{where} holds {held} bytes of numbers, but {shape} of {dtype} are {num_bytes}; get it again."
            )
        return np.frombuffer(file.read(num_bytes), dtype).reshape(shape, order="F" if columns_first else "C")


def read_npy_file(path: Path) -> np.ndarray:
    """Reads an .npy file; raises a DataError for a damaged one."""
    with naming_damage(str(path)), open(path, "rb") as file:
        return read_npy(file, path.stat().st_size, str(path))


def shape_of_npy_file(path: Path) -> tuple[int, ...]:
    """Returns the shape that an .npy file claims; raises a DataError for anything else."""
    with naming_damage(str(path)), open(path, "rb") as file:
        return read_header(file, str(path), "fiub")[0]


class NpzFile:
    """The arrays of an .npz file, each read on demand.

    Args:
        path: path of the file.
        archive: the opened file.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self.keys = {name.removesuffix(".npy"): name for name in archive.namelist()}

    def read(self, key: str, kinds: str = "f") -> np.ndarray:
        """Returns an array; raises a DataError if it is not there or not what it claims to be."""
        where = f"{self.path}, {key}"
        if key not in self.keys:
            raise DataError(
                f"{self.path} has no array {key!r}; it has {', '.join(sorted(self.keys)) or 'none'!s:.200}."
            )
        with naming_damage(where):
            info = self.archive.getinfo(self.keys[key])
            stored = min(info.compress_size, self.path.stat().st_size)  # compress_size is only a claim of the archive
            refuse_inflation(info.file_size, stored, where)
            with self.archive.open(info) as file:
                return read_npy(file, info.file_size, where, kinds)

    def integer(self, key: str) -> int:
        """Returns a whole number; raises a DataError for anything else."""
        array = self.read(key, "iuf")
        if array.size != 1 or not float(array.item()).is_integer():
            raise DataError(f"{self.path}, {key} is {array!s:.60}; it must be a whole number.")
        return int(array.item())


@contextmanager
def opened_npz(path: Path) -> Iterator[NpzFile]:
    """Opens an .npz file; raises a DataError if it cannot be read."""
    with naming_damage(str(path)), zipfile.ZipFile(path) as archive:
        yield NpzFile(path, archive)


def keys_of_npz_file(path: Path) -> set[str]:
    """Returns the names of the arrays in an .npz file; raises a DataError for anything else."""
    with opened_npz(path) as arrays:
        return set(arrays.keys)
