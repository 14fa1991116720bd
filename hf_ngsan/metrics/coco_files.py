"""COCO caption files: results to be scored, reference captions, and what the evaluation server accepts."""

import json
import os
import re
import tempfile
from pathlib import Path

_SERVER_NAME = re.compile(r"captions_(val|test)2014_\w+_results\.json")


def read_results(path):
    """Reads a COCO result file: a JSON list of `{"image_id": int, "caption": str}`, one row an image.

    Returns:
        `dict` from image id to caption, in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a list, or an image occurs twice; the message names the row.
    """
    rows = _read_json(path)
    if not isinstance(rows, list):
        raise ValueError(f"{path} must hold a JSON list of results, not {_kind(rows)}.")
    captions, first_row = {}, {}
    for number, row in enumerate(rows):
        image, caption = _fields(path, f"row {number}", row)
        if image in captions:
            raise ValueError(
                f"{path}: image {image} has two captions, in rows {first_row[image]} and {number}; give it one."
            )
        captions[image], first_row[image] = caption, number
    if not captions:
        raise ValueError(f"{path} holds no results.")
    return captions


def read_references(path):
    """Reads a COCO captions file: `{"images": [{"id": ...}], "annotations": [{"image_id", "id", "caption"}]}`.

    Returns:
        `dict` from image id to its captions: images in order of their ids, captions in order of annotation ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such an object; the message names the annotation.
    """
    data = _read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("annotations"), list):
        raise ValueError(
            f'{path} must be a COCO captions file, a JSON object with the list "annotations", not {_kind(data)}.'
        )
    found = []
    for number, row in enumerate(data["annotations"]):
        image, caption = _fields(path, f"annotation {number}", row)
        key = row.get("id", number)
        if not _is_int(key):
            raise ValueError(f'{path}: annotation {number} must have a whole number as "id", not {_kind(key)}.')
        found.append((image, key, number, caption))
    references = {}
    for image, _, _, caption in sorted(found):
        references.setdefault(image, []).append(caption)
    if not references:
        raise ValueError(f"{path} holds no captions.")
    return references


def read_image_ids(path):
    """The image ids of a COCO file with an "images" list, such as `image_info_test2014.json` or a captions file."""
    data = _read_json(path)
    images = data.get("images") if isinstance(data, dict) else None
    if not isinstance(images, list) or not all(isinstance(i, dict) and _is_int(i.get("id")) for i in images):
        raise ValueError(f'{path} must be a COCO file, a JSON object with the list "images" of objects with an "id".')
    return [image["id"] for image in images]


def match_results(results, references, results_path="the results", references_path="the references"):
    """Brings results and references together, in the order of image ids.

    Returns:
        `(image_ids, predictions, references)`, lists of the images that have a result.

    Raises:
        ValueError: an image of the results has no references.
    """
    unknown = [image for image in results if image not in references]
    if unknown:
        raise ValueError(
            f"{results_path} has {len(unknown)} image(s) without captions in {references_path}, such as "
            f"{', '.join(map(str, unknown[:5]))}; check that both are of the same split."
        )
    images = sorted(results)
    return images, [results[image] for image in images], [references[image] for image in images]


def check_server_format(path, image_ids=None):
    """Checks that the COCO evaluation server would take a result file.

    Args:
        path: the result file.
        image_ids (*optional*): the ids of all images of the split.

    Returns:
        `(number of results, notes)`, where `notes` are sentences about what to change before uploading.

    Raises:
        FileNotFoundError, ValueError: see `read_results`; also keys other than "image_id" and "caption", an empty
            caption, and, with `image_ids`, an unknown or a missing image.
    """
    results = read_results(path)
    for number, row in enumerate(_read_json(path)):
        extra = sorted(set(row) - {"image_id", "caption"})
        if extra:
            raise ValueError(
                f'{path}: row {number} has the key "{extra[0]}"; the server takes image_id and caption only.'
            )
        if not row["caption"].strip():
            raise ValueError(f"{path}: the caption in row {number} (image {row['image_id']}) is empty.")
    if image_ids is not None:
        known = set(image_ids)
        unknown = [image for image in results if image not in known]
        missing = sorted(known.difference(results))
        if unknown:
            raise ValueError(f"{path}: {len(unknown)} image(s) are not in the split, such as {unknown[0]}.")
        if missing:
            raise ValueError(f"{path}: {len(missing)} image(s) of the split have no caption, such as {missing[0]}.")
    notes = []
    if not _SERVER_NAME.fullmatch(Path(path).name):
        notes.append(
            "The server wants files named captions_val2014_NAME_results.json or captions_test2014_NAME_results.json."
        )
    return len(results), notes


def write_json(path, data):
    """Writes JSON under a temporary name first, so that no half-written file can be left behind."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the file to write.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=False, indent=1)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read_json(path):
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a JSON file.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None


def _fields(path, place, row):
    if not isinstance(row, dict):
        raise ValueError(f'{path}: {place} must be an object with "image_id" and "caption", not {_kind(row)}.')
    for key in ("image_id", "caption"):
        if key not in row:
            raise ValueError(f'{path}: {place} has no "{key}".')
    if not _is_int(row["image_id"]):
        raise ValueError(f'{path}: "image_id" of {place} must be a whole number, not {_kind(row["image_id"])}.')
    if not isinstance(row["caption"], str):
        raise ValueError(f'{path}: "caption" of {place} must be a string, not {_kind(row["caption"])}.')
    return row["image_id"], row["caption"]


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value):
    names = {dict: "an object", list: "a list", type(None): "null", bool: "true or false"}
    return names.get(type(value), f"{value!r:.40}")
