"""Results of captioning: matched with their references, and checked for the COCO evaluation server."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from ..io.coco_files import captions_of_results, id_order, images_by_id, read_json, read_object, result_records

SERVER_NAME = re.compile(r"captions_(val|test)2014_\w+_results\.json")


def match_results(
    results: Mapping[int | str, str],
    references: Mapping[int | str, list[str]],
    results_path: str | os.PathLike = "the results",
    references_path: str | os.PathLike = "the references",
) -> tuple[list[int | str], list[str], list[list[str]]]:
    """Brings results and references together, in the order of image ids.

    Args:
        results: one caption for each image id.
        references: captions for each image id; the ids `7` and `"7"` name the same image.
        results_path, references_path: where both come from, for messages.

    Returns:
        `(image_ids, predictions, references)`, lists of the images that have a result, with the ids of the results.

    Raises:
        ValueError: an image of the results has no references.
    """
    by_text = {str(image_id): captions for image_id, captions in references.items()}
    unknown = [image_id for image_id in results if str(image_id) not in by_text]
    if unknown:
        raise ValueError(
            f"{results_path} has {len(unknown)} image(s) without captions in {references_path}, such as "
            f"{', '.join(map(str, unknown[:5]))}; check that both are of the same split."
        )
    image_ids = sorted(results, key=id_order)
    return image_ids, [results[one] for one in image_ids], [by_text[str(one)] for one in image_ids]


def check_server_format(path: str | os.PathLike, image_ids: Collection[int] | None = None) -> tuple[int, list[str]]:
    """Checks that the COCO evaluation server would take a result file.

    Args:
        path: the result file.
        image_ids: the ids of all images of the split.

    Returns:
        `(number of results, notes)`, where `notes` are sentences about what to change before uploading.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        ValueError: the file is no JSON list of results, an image occurs twice, an image id is no integer, there is a
            key other than "image_id" and "caption" or an empty caption; or, with `image_ids`, an image is unknown or
            missing.
    """
    rows = result_records(read_json(path), path)
    results = captions_of_results(rows, path)
    for row in rows:
        extra = sorted(row.fields.keys() - {"image_id", "caption"})
        if extra:
            raise ValueError(f'{row.where} has the key "{extra[0]}"; the server takes image_id and caption only.')
        image_id = row.integer("image_id")
        if not row.string("caption").strip():
            raise ValueError(f"{row.where}: the caption of image {image_id} is empty.")
    if image_ids is not None:
        known = set(image_ids)
        unknown = [image_id for image_id in results if image_id not in known]
        missing = sorted(known.difference(results))
        if unknown:
            raise ValueError(f"{path}: {len(unknown)} image(s) are not in the split, such as {unknown[0]}.")
        if missing:
            raise ValueError(f"{path}: {len(missing)} image(s) of the split have no caption, such as {missing[0]}.")
    notes = []
    if not SERVER_NAME.fullmatch(Path(path).name):
        notes.append(
            "The server wants files named captions_val2014_NAME_results.json or captions_test2014_NAME_results.json."
        )
    return len(results), notes


def read_image_ids(path: str | os.PathLike) -> list[int]:
    """Reads the image ids of a COCO file with the list `images`, such as `image_info_test2014.json`.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        ValueError: the file is no such file.
    """
    return list(images_by_id(read_object(path), path))
