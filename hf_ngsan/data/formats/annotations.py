"""Captions, splits and sizes from annotation files, joined with features by image id.

annotations = Annotations([Path("dataset_coco.json")], skipped=None)
annotations.find(391895, "391895", is_numbered=True).captions
"""

from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import islice
from pathlib import Path

from ..errors import DataError, as_data_error
from .annotation_files import AnnotatedImage, annotation_format, read_all, read_document

MAX_LISTED = 10
"""Images that a message lists."""


class Annotations:
    """The annotations of a conversion by image.

    Args:
        paths: annotation files.
        skipped: gets `{"image_id", "file_name", "reason"}` of broken records; if None, these are errors.

    Raises:
        DataError: a file or, unless they are skipped, a record cannot be used, or images occur twice.
    """

    def __init__(self, paths: Iterable[Path], skipped: list[dict] | None) -> None:
        self.paths = list(paths)
        found: dict[str, AnnotatedImage] = {}
        for path in self.paths:
            document = read_document(path)
            entries = annotation_format(document, path).entries(document, path)
            with as_data_error():
                for _, image in read_all(entries, lambda image: image.key, skipped):
                    found[image.key] = found[image.key].with_more(image) if image.key in found else image
        self.images = list(found.values())
        self.by_name = {image.name: image for image in self.images if image.name is not None}
        kinds = {kind for image in self.images for kind in image.ids}
        self.by_id = {
            kind: {image.ids[kind]: image for image in self.images if kind in image.ids} for kind in sorted(kinds)
        }

    def __bool__(self) -> bool:
        return bool(self.paths)

    @cached_property
    def has_captions(self) -> bool:
        return any(image.captions is not None for image in self.images)

    @property
    def has_split(self) -> bool:
        return any(image.split is not None for image in self.images)

    def find(self, image_id: int, name: str, is_numbered: bool) -> AnnotatedImage | None:
        """Returns the annotations of an image with features, by its id or, if that is only a place, by its name.

        Raises:
            DataError: the number is the `imgid` of one image and the `filename` of another.
        """
        if not is_numbered:
            return self.by_name.get(name)
        if len(self.by_id) > 1:
            self.choose_kind(image_id)
        return next((images[image_id] for images in self.by_id.values() if image_id in images), None)

    def choose_kind(self, image_id: int) -> None:
        """Keeps only the kind of id that an image with features has."""
        kinds = [kind for kind, images in self.by_id.items() if image_id in images]
        if len(kinds) > 1:
            raise DataError(
                f"{self.paths[0]}: {image_id} is the {' and the '.join(kinds)} of different images; name the files of"
                " features by their file names."
            )
        if kinds:
            self.by_id = {kinds[0]: self.by_id[kinds[0]]}

    def missing(self, image_ids: Collection[int], names: Collection[str]) -> list[int | str]:
        """Returns ids, or names if `names` are given, of annotated images without features."""
        if names:
            return [name for name in self.by_name if name not in names]
        of_kind = max(self.by_id.values(), key=lambda images: len(images.keys() & image_ids), default={})
        return [image_id for image_id in of_kind if image_id not in image_ids]


def listing(values: Collection[object]) -> str:
    """Returns the first few values, for messages."""
    return ", ".join(map(str, islice(values, MAX_LISTED))) + (", ..." if len(values) > MAX_LISTED else "")
