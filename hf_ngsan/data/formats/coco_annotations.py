"""COCO's annotation files: captions, and sizes of images."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...ground.coco_files import Record, images_by_id, in_order, records_of, tidy_caption
from ..errors import DataError
from .annotations import AnnotatedImage, AnnotationEntry


def is_coco(document: object) -> bool:
    return isinstance(document, dict) and {"images", "annotations"} <= document.keys()


def coco_entries(document: dict, path: Path) -> Iterator[AnnotationEntry]:
    """Yields the images of a file, with their captions where its annotations have any."""
    images = images_by_id(document, path)
    annotations = records_of(document, "annotations", path)
    captions: dict[int, list[str]] | None = None
    if any("caption" in annotation.fields for annotation in annotations):
        captions = {image_id: [] for image_id in images}
        for annotation in in_order(annotations):
            image_id, text = annotation.integer("image_id"), tidy_caption(annotation)
            if image_id not in captions:
                raise DataError(f"{annotation.where}: image_id {image_id} is not among the 'images'; add the image.")
            captions[image_id] += [text] if text else []
    for image_id, image in images.items():
        own = None if captions is None else tuple(captions[image_id])
        yield AnnotationEntry(image.where, image_id, partial(read_image, image, image_id, own))


def read_image(image: Record, image_id: int, captions: tuple[str, ...] | None) -> AnnotatedImage:
    name = image.fields.get("file_name")
    size = None
    if {"width", "height"} <= image.fields.keys():
        size = image.integer("width"), image.integer("height")
        if not all(1 <= side < 2**31 for side in size):
            raise DataError(f"{image.where}: width and height are {size}; they must be numbers of pixels.")
    return AnnotatedImage(
        {"image_id": image_id}, Path(name).stem if isinstance(name, str) else None, captions, size=size
    )
