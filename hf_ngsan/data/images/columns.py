"""Finds the columns of images, captions, ids and file names of a dataset, by type and name.

```python
find_columns(dataset, "flickr8k", None, None).captions  # ("caption_0", "caption_1", ..., "caption_4")
```
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import datasets
from datasets import ClassLabel, Dataset, LargeList, List, Value

from ..errors import DataError

IMAGE_NAMES = ("image", "img", "images", "picture", "photo", "jpg", "jpeg", "png", "bytes", "image_bytes")
CAPTION_NAMES = ("captions", "caption", "sentences", "sentence", "texts", "text", "descriptions", "description", "txt")
NUMBERED_CAPTION = re.compile(r"(captions?|sentences?|texts?|descriptions?|comments?)[_ ]?(\d+)")
ID_NAMES = ("image_id", "imageid", "img_id", "imgid", "coco_id", "cocoid")
FILE_NAMES = (
    "file_name",
    "filename",
    "image_name",
    "image_file",
    "image_path",
    "img_path",
    "file_path",
    "filepath",
    "__key__",
)


@dataclass(frozen=True)
class Columns:
    """The columns of a dataset that are read.

    Attributes:
        image: column of images, their bytes or the paths of their files.
        captions: columns of strings or lists of strings; empty without captions.
        id, file_name: columns of the id and the file name of the image, or None.
        row_id: column `id`, of the image or of the caption, or None.
        size: width and height in pixels, or none.
    """

    image: str
    captions: tuple[str, ...]
    id: str | None
    row_id: str | None
    file_name: str | None
    size: tuple[str, ...]

    @property
    def key(self) -> str | None:
        """The column that is equal in the rows of one image, or None."""
        return self.id or self.file_name

    @property
    def besides_images(self) -> list[str]:
        """The columns other than that of the images, each once."""
        names = (*self.captions, self.id, self.row_id, self.file_name, *self.size)
        return list(dict.fromkeys(filter(None, names)))


def find_columns(dataset: Dataset, source: str, image: str | None, captions: str | None) -> Columns:
    """Finds the columns by their types and names, unless they are given.

    Args:
        dataset: the dataset as it is stored.
        source: name for errors.
        image: the column of images.
        captions: the column of captions, or several with `+` between.

    Raises:
        DataError: no image column, several of them, or a given column that is not there or of another type.
    """
    if image is None:
        image = find_image_column(dataset, source)
    else:
        refuse_column(dataset, source, "image", image, is_image, "one of images, their bytes or paths of their files")
    if captions is None:
        chosen = find_caption_columns(dataset)
    else:
        chosen = [captions] if captions in dataset.column_names else [name.strip() for name in captions.split("+")]
        for name in chosen:
            if name not in find_caption_columns(dataset):
                refuse_column(dataset, source, "captions", name, is_text_or_list, "strings or lists of them")
    sides = [find_name(dataset, (name,), is_integer) for name in ("width", "height")]
    size = tuple(name for name in sides if name is not None)
    return Columns(
        image=image,
        captions=tuple(chosen),
        id=find_name(dataset, ID_NAMES, is_scalar),
        row_id=find_name(dataset, ("id",), is_scalar),
        file_name=find_name(dataset, FILE_NAMES, is_text),
        size=size if len(size) == 2 else (),
    )


def find_image_column(dataset: Dataset, source: str) -> str:
    """Finds a column of images, else one of images as they are stored, else one of bytes with a name of images."""
    columns = dataset.features.items()
    names = (
        [name for name, kind in columns if isinstance(kind, datasets.Image)]
        or [name for name, kind in columns if is_encoded_image(kind)]
        or [name for name, kind in columns if name.lower() in IMAGE_NAMES and is_bytes(kind)]
    )
    best = names[0] if len(names) == 1 else find_name(dataset.select_columns(names), IMAGE_NAMES)
    if best is None:
        state = f"several columns of images, {', '.join(names)}" if names else "no column of images"
        raise DataError(
            f"{source} has {state}; name one that holds images, their bytes or the paths of their files with"
            f" image=COLUMN, of {', '.join(dataset.column_names)}."
        )
    return best


def find_caption_columns(dataset: Dataset) -> list[str]:
    """Finds a column with a name of `CAPTION_NAMES`, else numbered ones such as `caption_0`, `caption_1`.

    Columns of text come first. Whole numbers are captions where there is none: a CSV file does not say which digits are
    text.
    """
    for fits in (is_text_or_list, is_integer):
        names = [name for name, kind in dataset.features.items() if fits(kind)]
        best = find_name(dataset.select_columns(names), CAPTION_NAMES)
        if best is not None:
            return [best]
        matches = {name: NUMBERED_CAPTION.fullmatch(name.lower()) for name in names}
        numbered = sorted((match[1], int(match[2]), name) for name, match in matches.items() if match)
        if numbered:
            return [name for stem, _, name in numbered if stem == numbered[0][0]]
    return []


def refuse_column(
    dataset: Dataset, source: str, key: str, name: str, fits: Callable[[object], bool], kinds: str
) -> None:
    """Raises a DataError for a column that a user names and that is not there, or of another type."""
    if name not in dataset.column_names:
        raise DataError(f"{source} has no column {name!r} for {key}=; there are {', '.join(dataset.column_names)}.")
    if not fits(dataset.features[name]):
        raise DataError(f"{source}: column {name!r} is of type {dataset.features[name]}; {key}= takes {kinds}.")


def find_name(
    dataset: Dataset, names: tuple[str, ...], fits: Callable[[object], bool] = lambda kind: True
) -> str | None:
    """Returns the column that is first in a list of names, ignoring case; None without one, or if its type is wrong."""
    known = {name.lower(): name for name in dataset.column_names}
    name = next((known[name] for name in names if name in known), None)
    return name if name is not None and fits(dataset.features[name]) else None


def is_scalar(kind: object) -> bool:
    return isinstance(kind, Value | ClassLabel)


def is_bytes(kind: object) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("binary", "large_binary")


def is_text(kind: object) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("string", "large_string", "string_view")


def is_text_list(kind: object) -> bool:
    return isinstance(kind, List | LargeList) and is_text(kind.feature)


def is_text_or_list(kind: object) -> bool:
    return is_text(kind) or is_text_list(kind)


def is_integer(kind: object) -> bool:
    return isinstance(kind, Value) and kind.dtype.startswith(("int", "uint"))


def is_encoded_image(kind: object) -> bool:
    """Returns whether a type is the struct in which the datasets library stores images."""
    return (
        isinstance(kind, dict)
        and set(kind) == {"bytes", "path"}
        and (is_bytes(kind["bytes"]) or kind["bytes"] == Value("null"))
    )


def is_image(kind: object) -> bool:
    return isinstance(kind, datasets.Image) or is_encoded_image(kind) or is_bytes(kind) or is_text(kind)
