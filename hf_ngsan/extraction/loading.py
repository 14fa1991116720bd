"""Loading of images: worker processes read and preprocess them batch by batch."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BaseImageProcessor

from ..data import DataError
from ..io.files import FileStamp
from ..io.messages import type_and_reason
from ..models.image_processing_captioning import ImageError, least_side_of
from .errors import ExtractionError
from .image_list import ImageList

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class ImageChange:
    """A change of images before extraction, such as a random crop.

    Attributes:
        change: takes `{"image_id", "image", "captions"}` and returns it with the changed image, which must not depend
            on the order or process of reading.
        description: JSON that identifies the change; features of different changes do not mix.
    """

    change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    description: Mapping[str, Any]


@dataclass
class PreparedBatch:
    """A batch of preprocessed images.

    Attributes:
        positions: places of the readable images in the list.
        sizes: their widths and heights in pixels.
        inputs: `pixel_values` and, if sizes differ, `pixel_mask`; empty if no image could be read.
        unreadable: place and reason of each other image.
        stamps: stamps of the readable images by place, if they have any.
        thumbnails: small JPEG images of them, if requested.
    """

    positions: list[int]
    sizes: list[tuple[int, int]]
    inputs: dict[str, torch.Tensor]
    unreadable: list[tuple[int, str]]
    stamps: dict[int, FileStamp]
    thumbnails: list[bytes]


class PreparedBatches(Dataset):
    """Batches of a list of images.

    Args:
        images: the list.
        batches: positions in the list.
        image_processor: turns PIL images into pixel values.
        change: change of each image, or None.
        thumbnail_side: longest side of thumbnails in pixels; 0 = no thumbnails.
    """

    def __init__(
        self,
        images: ImageList,
        batches: Sequence[Sequence[int]],
        image_processor: BaseImageProcessor,
        change: ImageChange | None = None,
        thumbnail_side: int = 0,
    ) -> None:
        self.images, self.batches, self.image_processor, self.change = images, batches, image_processor, change
        self.thumbnail_side = thumbnail_side

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> PreparedBatch:
        """Reads a batch; an error of one image, of any type, does not affect the others."""
        pictures: dict[int, Image] = {}
        stamps: dict[int, FileStamp] = {}
        unreadable = []
        for position in self.batches[index]:
            try:
                picture, stamp = self.read(position)
            except MemoryError:
                raise
            except Exception as error:
                unreadable.append((position, self.reason(position, error)))
            else:
                pictures[position] = picture
                if stamp is not None:
                    stamps[position] = stamp
        try:
            inputs = self.inputs_of(list(pictures.values()))
        except MemoryError:
            raise
        except Exception:
            for position, picture in list(pictures.items()):
                try:
                    self.inputs_of([picture])
                except Exception as error:
                    del pictures[position]
                    unreadable.append((position, self.reason(position, error)))
            inputs = self.inputs_of(list(pictures.values()))
        sizes = [picture.info.get("full size", picture.size) for picture in pictures.values()]
        stamps = {position: stamp for position, stamp in stamps.items() if position in pictures}
        side = self.thumbnail_side
        thumbnails = [thumbnail_of(picture, side) for picture in pictures.values()] if side else []
        return PreparedBatch(list(pictures), sizes, inputs, unreadable, stamps, thumbnails)

    def read(self, position: int) -> tuple["Image", FileStamp | None]:
        least_side = None if self.change is not None else least_side_of(self.image_processor)
        picture, stamp = self.images.read(position, least_side and max(least_side, self.thumbnail_side))
        if self.change is not None:
            listed = self.images.images[position]
            row = {"image_id": listed.image_id, "image": picture, "captions": listed.captions}
            picture = self.change.change(row)["image"]
        return picture, stamp

    def inputs_of(self, pictures: list["Image"]) -> dict[str, torch.Tensor]:
        return dict(self.image_processor(images=pictures, return_tensors="pt")) if pictures else {}

    def reason(self, position: int, error: Exception) -> str:
        """Returns an error as a sentence that names the image, which errors of reading already do."""
        if isinstance(error, ImageError | DataError):
            return " ".join(str(error).split())
        return f"{self.images.images[position].file_name} cannot be read ({type_and_reason(error)})."


def thumbnail_of(picture: "Image", side: int) -> bytes:
    """Returns an RGB image as JPEG, reduced if a side is longer than `side` pixels."""
    small, file = picture.copy(), io.BytesIO()
    small.thumbnail((side, side))
    small.save(file, "JPEG", quality=85)
    return file.getvalue()


def load_batches(
    images: ImageList,
    batches: Sequence[Sequence[int]],
    image_processor: BaseImageProcessor,
    num_workers: int,
    change: ImageChange | None = None,
    thumbnail_side: int = 0,
) -> DataLoader:
    """Returns the prepared batches in order; `num_workers` processes prepare them, or this process if it is 0."""
    dataset = PreparedBatches(images, batches, image_processor, change, thumbnail_side)
    return DataLoader(dataset, batch_size=None, num_workers=num_workers)


def next_batch(prepared: Iterator[PreparedBatch]) -> PreparedBatch:
    """Returns the next batch; raises an ExtractionError if the process that reads it has ended."""
    try:
        return next(prepared)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ExtractionError(
            f"A process that reads images ended unexpectedly ({' '.join(str(error).split())}); it may lack memory: use "
            "fewer --num-workers or a smaller --batch-size."
        ) from error
