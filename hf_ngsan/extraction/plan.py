"""Plan of an extraction: the chunks of the list that lack features, cut at the same places in every run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..io.files import FileStamp
from ..io.shards import ShardRecord
from .errors import ExtractionError
from .image_list import ImageList

MAX_IMAGES_PER_SHARD = 256
MIN_SHARDS = 64
"""Shards of a folder with enough images, so that many processes get equal shares."""


@dataclass(frozen=True)
class Chunk:
    """Images of one shard.

    Attributes:
        generation, number: place of the shard; see [`ShardRecord`].
        batches: positions in the list of images, batch by batch. Batches are cut at the same places whichever images
            are missing, so that an image is in the same batch in every run.
        is_retry: whether it has only images that could not be read before.
    """

    generation: int
    number: int
    batches: tuple[tuple[int, ...], ...]
    is_retry: bool

    @property
    def num_images(self) -> int:
        return sum(map(len, self.batches))


def default_images_per_shard(num_images: int, batch_size: int, largest: int = MAX_IMAGES_PER_SHARD) -> int:
    """Returns a multiple of the batch size that gives processes equal shares and limits the loss of a kill."""
    wanted = min(max(num_images // MIN_SHARDS, 1), largest)
    return -(-wanted // batch_size) * batch_size


def plan_chunks(
    images: ImageList,
    split: str | None,
    records: Sequence[ShardRecord],
    rows: Mapping[int, Mapping],
    images_per_shard: int,
    batch_size: int,
) -> list[Chunk]:
    """Returns the chunks with images that lack features.

    Args:
        images, split: images to extract.
        records, rows: contents of the folder ([`FeatureFolder`]).
        images_per_shard: length of a chunk.
        batch_size: images that go through the backbone together.

    Raises:
        ExtractionError: the folder has another image, or other captions, under an image id.
    """
    check_conflicts(images, split, rows)
    image_list = images.checksum(split)
    next_generation = max((record.generation for record in records), default=-1) + 1
    own = [record for record in records if record.image_list == image_list]
    generation = min((record.generation for record in own), default=next_generation)
    done = {record.chunk for record in own if record.generation == generation}
    chunks = []
    for number, start in enumerate(range(0, len(images), images_per_shard)):
        end = min(start + images_per_shard, len(images))
        batches = (range(first, min(first + batch_size, end)) for first in range(start, end, batch_size))
        without_rows = (tuple(i for i in batch if images.images[i].image_id not in rows) for batch in batches)
        missing = tuple(batch for batch in without_rows if batch)
        if missing:
            is_retry = number in done
            chunks.append(Chunk(next_generation if is_retry else generation, number, missing, is_retry))
    return chunks


def check_conflicts(images: ImageList, split: str | None, rows: Mapping[int, Mapping]) -> None:
    for image in images.images:
        row = rows.get(image.image_id)
        if row is None:
            continue
        wanted = {"file_name": image.file_name, "split": split, "captions": image.captions and list(image.captions)}
        for field, value in wanted.items():
            if row.get(field) != value:
                raise ExtractionError(
                    f"{images.source}: image {image.image_id} has {field} {value!r}, but {row.get(field)!r} in the "
                    "output folder; choose another output folder, or give images with ids of their own."
                )


def stamps_of_images(
    images: ImageList, records: Sequence[ShardRecord], rows: Mapping[int, Mapping]
) -> dict[int, FileStamp]:
    """Returns the stamps of images with features in the folder, by place in the list."""
    stamps = {image_id: stamp for record in records for image_id, stamp in record.images.items()}
    ids = [image.image_id for image in images.images]
    return {place: stamps[str(one)] for place, one in enumerate(ids) if one in rows and str(one) in stamps}


def refuse_changed_images(images: ImageList, stamps: Mapping[int, FileStamp]) -> None:
    """Raises an ExtractionError for images that have changed since these stamps, given by place in the list.

    A missing image has not changed.
    """
    changed = [images.images[place] for place, stamp in stamps.items() if not images.is_unchanged(place, stamp)]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ExtractionError(
            f"{images.source}: {changed[0].file_name} (image {changed[0].image_id}){more} changed since their "
            "features were extracted; choose another output folder, or give the original images."
        )
