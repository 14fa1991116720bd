"""All correct matches of images and captions of COCO, listed by ECCV Caption (Chun et al. 2022)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from ...data.coco_files import in_order, read_json, records_of
from ...data.errors import DataError


class Positives(NamedTuple):
    """Correct matches, as places among the images and captions of a dataset.

    Attributes:
        image_to_text: correct captions of each image.
        text_to_image: correct images of each caption.
    """

    image_to_text: dict[int, list[int]]
    text_to_image: dict[int, list[int]]


def read_positives(
    image_to_text: str | Path, text_to_image: str | Path, caption_file: str | Path, rows: Dataset
) -> Positives:
    """Reads the correct matches of captions and images.

    Args:
        image_to_text: `eccv_image_to_caption.json`: a JSON object from image id to a list of caption ids.
        text_to_image: `eccv_caption_to_image.json`, the other direction.
        caption_file: COCO's `captions_*.json`, which has the ids of captions.
        rows: the dataset that is evaluated, with `image_id` and `captions`.

    Raises:
        DataError: a file cannot be used, or names an image or a caption that the dataset does not have.
    """
    images = {int(image_id): place for place, image_id in enumerate(rows["image_id"])}
    captions = places_of_captions(caption_file, images, rows["captions"])
    return Positives(
        translated(image_to_text, images, captions, "image", "caption"),
        translated(text_to_image, captions, images, "caption", "image"),
    )


def places_of_captions(
    file: str | Path, images: Mapping[int, int], captions: Sequence[Sequence[str]]
) -> dict[int, int]:
    """Returns the place of each caption id; captions are counted image by image."""
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    place = 0
    for image_id, texts in zip(images, captions, strict=True):
        for text in texts:
            places[image_id, " ".join(text.split())].append(place)
            place += 1
    found = {}
    for annotation in in_order(records_of(read_json(file), "annotations", file)):
        key = annotation.integer("image_id"), annotation.text("caption")
        if places.get(key):
            found[annotation.integer("id")] = places[key].pop(0)
    return found


def translated(
    file: str | Path, queries: Mapping[int, int], items: Mapping[int, int], query: str, item: str
) -> dict[int, list[int]]:
    """Returns the lists of a file with ids replaced by places."""
    content = read_json(file)
    if not isinstance(content, dict) or not content:
        raise DataError(f"{file} must be a JSON object from {query} ids to lists of {item} ids.")
    found = {}
    for key, values in content.items():
        if not isinstance(values, list) or not values:
            raise DataError(f"{file}: {query} {key} has {values!r:.60}; it must be a list of {item} ids.")
        found[place_of(queries, key, query, file)] = [place_of(items, value, item, file) for value in values]
    return found


def place_of(places: Mapping[int, int], key: object, kind: str, file: str | Path) -> int:
    """Returns the place of an id, which a file may have as a string."""
    try:
        return places[int(key) if isinstance(key, str) else key]  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{file} names {kind} {key!r:.60}, which the dataset does not have; evaluate the whole split that the file "
            "is of."
        ) from None
