"""What annotation files say of images - captions, splits, sizes - and how it is joined with features by image id."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from ...ground.coco_files import CocoFileError, read_json
from ..errors import DataError, as_data_error

LISTED_AT_MOST = 10


@dataclass(frozen=True)
class AnnotatedImage:
    """What is known of one image or video.

    Attributes:
        ids: the numbers that it may have, by what they are: `image_id` where the file has one; otherwise `imgid`, its
            place in a Karpathy file, and `filename`, where files are called by numbers.
        name: of its file, without folder and suffix, or of the video; None where it is not known.
        captions: None where the file is not about captions.
        split: `train`, `validation`, `test` or another; None where it is not known.
        size: width and height in pixels; None where they are not known.
    """

    ids: dict[str, int]
    name: str | None = None
    captions: tuple[str, ...] | None = None
    split: str | None = None
    size: tuple[int, int] | None = None

    def with_more(self, other: "AnnotatedImage") -> "AnnotatedImage":
        """Returns what two files say of the image, the captions of both."""
        captions = None if self.captions is other.captions is None else (self.captions or ()) + (other.captions or ())
        return replace(
            self,
            name=self.name or other.name,
            captions=captions,
            split=self.split or other.split,
            size=self.size or other.size,
        )


class AnnotationEntry(NamedTuple):
    """A record of an annotation file: what to call it in messages, its image's name there, and how to read it."""

    where: str
    name: object
    read: Callable[[], AnnotatedImage]


@dataclass(frozen=True)
class AnnotationFormat:
    """One layout of annotation files in JSON.

    Attributes:
        name: as messages call it.
        summary: what it is, in one line.
        fits: `"module:function"` that says of a JSON document whether it is one.
        reader: `"module:function"` that yields the [`AnnotationEntry`]s of a document, given that and the path.
    """

    name: str
    summary: str
    fits: str
    reader: str

    def is_of(self, document: object) -> bool:
        return bool(resolve_name(f"{__package__}.{self.fits}")(document))

    def entries(self, document: object, path: Path) -> Iterator[AnnotationEntry]:
        return resolve_name(f"{__package__}.{self.reader}")(document, path)


FORMATS = {
    one.name: one
    for one in (
        AnnotationFormat(
            "karpathy",
            "Karpathy's split files of COCO, Flickr8k and Flickr30k",
            "karpathy:is_karpathy",
            "karpathy:karpathy_entries",
        ),
        AnnotationFormat(
            "coco",
            "COCO's captions_*.json and instances_*.json",
            "coco_annotations:is_coco",
            "coco_annotations:coco_entries",
        ),
        AnnotationFormat(
            "vatex-captions", "VATEX's captions", "vatex_captions:is_vatex", "vatex_captions:vatex_entries"
        ),
    )
}


def read_document(path: Path) -> object:
    """Reads a JSON file; a DataError says if it is none."""
    with as_data_error():
        return read_json(path)


def annotation_format(document: object, path: Path) -> AnnotationFormat:
    """Returns the format of a JSON document; a DataError says if it is of none."""
    for one in FORMATS.values():
        if one.is_of(document):
            return one
    known = "; ".join(f"{one.name}: {one.summary}" for one in FORMATS.values())
    raise DataError(f"{path} is JSON of no known format; there are {known}.")


class Annotations:
    """What the annotation files of a conversion say, by image.

    Args:
        paths: of the files.
        skipped: gets `{"image_id", "file_name", "reason"}` of broken records; if None, these are errors.

    Raises:
        DataError: a file or, unless they are skipped, a record cannot be used, or images occur twice.
    """

    def __init__(self, paths: Iterable[Path], skipped: list[dict] | None) -> None:
        self.paths = list(paths)
        self.images: list[AnnotatedImage] = []
        for path in self.paths:
            with as_data_error():
                self.add_file(path, skipped)
        self.by_name = {image.name: image for image in self.images if image.name is not None}
        kinds = {kind for image in self.images for kind in image.ids}
        self.by_id = {
            kind: {image.ids[kind]: image for image in self.images if kind in image.ids} for kind in sorted(kinds)
        }

    def __bool__(self) -> bool:
        return bool(self.paths)

    def add_file(self, path: Path, skipped: list[dict] | None) -> None:
        document = read_document(path)
        before = {tuple(image.ids.items()) or image.name: place for place, image in enumerate(self.images)}
        own: dict[object, str] = {}
        for entry in annotation_format(document, path).entries(document, path):
            try:
                image = entry.read()
                key = tuple(image.ids.items()) or image.name
                if key in own:
                    raise DataError(f"{entry.where}: the image {entry.name} is in {own[key]} already.")
            except (DataError, CocoFileError) as error:
                if skipped is None:
                    raise DataError(f"{str(error).rstrip('.')} (--skip-broken leaves it out).") from None
                skipped.append({"image_id": entry.name, "file_name": entry.where, "reason": str(error)})
                continue
            own[key] = entry.where
            if key in before:
                self.images[before[key]] = self.images[before[key]].with_more(image)
            else:
                self.images.append(image)

    @property
    def has_captions(self) -> bool:
        return any(image.captions is not None for image in self.images)

    @property
    def has_split(self) -> bool:
        return any(image.split is not None for image in self.images)

    @property
    def has_sizes(self) -> bool:
        return bool(self.images) and all(image.size is not None for image in self.images)

    def find(self, image_id: int, name: str, is_numbered: bool) -> AnnotatedImage | None:
        """Returns what is known of an image with features, by its id or, where that is but a place, by its name.

        Raises:
            DataError: the id may be several kinds of number.
        """
        if not is_numbered:
            return self.by_name.get(name)
        if len(self.by_id) > 1:
            self.choose_kind(image_id)
        return next((images[image_id] for images in self.by_id.values() if image_id in images), None)

    def choose_kind(self, image_id: int) -> None:
        """Keeps the one kind of id that an image with features has."""
        kinds = [kind for kind, images in self.by_id.items() if image_id in images]
        if len(kinds) > 1:
            raise DataError(
                f"{self.paths[0]}: {image_id} is the {' and the '.join(kinds)} of different images; name the files of"
                " features by their file names."
            )
        if kinds:
            self.by_id = {kinds[0]: self.by_id[kinds[0]]}

    def missing(self, image_ids: Collection[int], names: Collection[str]) -> list[int | str]:
        """Returns ids, or names where there are any, of annotated images that are not among those with features."""
        if names:
            return [name for name in self.by_name if name not in names]
        of_kind = max(self.by_id.values(), key=lambda images: len(images.keys() & image_ids), default={})
        return [image_id for image_id in of_kind if image_id not in image_ids]

    def missing_message(self, missing: Sequence[int | str]) -> str:
        shown = ", ".join(map(str, islice(missing, LISTED_AT_MOST)))
        more = ", ..." if len(missing) > LISTED_AT_MOST else ""
        return f"{len(missing)} images of {', '.join(map(str, self.paths))} have no features: {shown}{more}"
