"""Reading images and preprocessing them, batch by batch, in processes of their own."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BaseImageProcessor

from ..data import DataError
from ..ground.files import FileStamp
from ..ground.messages import type_and_reason
from ..models.images import ImageError
from .errors import ExtractionError
from .image_list import ImageList

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class ImageChange:
    """How images are changed before their features are extracted, such as by random crops.

    Attributes:
        change: given `{"image_id", "image", "captions"}` of an image returns the same with the changed image, which may
            not depend on the order or the process in which images are read.
        description: JSON by which changes are told apart; features of different ones do not mix.
    """

    change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    description: Mapping[str, Any]


@dataclass
class PreparedBatch:
    """A batch as the backbone takes it.

    Attributes:
        positions: places in the list of the images that could be read.
        sizes: their widths and heights in pixels.
        inputs: `pixel_values` and, where sizes differ, `pixel_mask`; empty if no image could be read.
        unreadable: place and reason of each of the others.
        stamps: of the images that could be read, by their places, where they have any.
        thumbnails: small JPEG images of them, if asked for.
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
        batches: positions in it.
        image_processor: makes pixel values of PIL images.
        change: of each image, or None.
        thumbnail_side: longest side of thumbnails in pixels; 0 = none are made.
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
        """Reads a batch; one bad image never costs the others, whatever a library raises."""
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
                stamps |= {} if stamp is None else {position: stamp}
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
        sizes = [picture.size for picture in pictures.values()]
        stamps = {position: stamp for position, stamp in stamps.items() if position in pictures}
        side = self.thumbnail_side
        thumbnails = [thumbnail_of(picture, side) for picture in pictures.values()] if side else []
        return PreparedBatch(list(pictures), sizes, inputs, unreadable, stamps, thumbnails)

    def read(self, position: int) -> tuple["Image", FileStamp | None]:
        picture, stamp = self.images.read(position)
        if self.change is not None:
            listed = self.images.images[position]
            row = {"image_id": listed.image_id, "image": picture, "captions": listed.captions}
            picture = self.change.change(row)["image"]
        return picture, stamp

    def inputs_of(self, pictures: list["Image"]) -> dict[str, torch.Tensor]:
        return dict(self.image_processor(images=pictures, return_tensors="pt")) if pictures else {}

    def reason(self, position: int, error: Exception) -> str:
        """Returns one sentence that names the image; those of reading do already."""
        if isinstance(error, ImageError | DataError):
            return " ".join(str(error).split())
        return f"{self.images.images[position].file_name} cannot be read ({type_and_reason(error)})."


def thumbnail_of(picture: "Image", side: int) -> bytes:
    """Returns an image in RGB as JPEG, made smaller if a side is longer than `side` pixels."""
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
    """Returns the prepared batches in their order; `num_workers` processes prepare them, this one does with 0."""
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
