"""The reader of `videos:FOLDER`: video files with captions, in the forms that photographs have them.

```python
load_videos("clips", "train")[0]  # {"image_id": 0, "video": {"bytes": None, "path": ".../jump.mp4"}, "captions": [...]}
```
"""

from pathlib import Path

from datasets import Dataset, Image, Video

from .errors import DataError, MissingSplitError
from .images import VIDEO_SUFFIXES
from .images.rows import find_columns, make_rows
from .images.sources import read_folder
from .readers import find_split


def load_videos(source: str, split: str, *, captions: str | None = None) -> Dataset:
    """Loads one split of a folder of videos.

    Args:
        source: a folder as [`~hf_ngsan.data.images.sources.read_folder`] reads it for photographs: any names, captions
            in a `metadata.csv` or in `clip.txt` beside `clip.mp4`, splits in folders `train`, `validation` and `test`.
        split: `train`, `validation` (or `val`) or `test`.
        captions: the column of captions, or several with `+` between; found by name if None.

    Returns:
        `datasets.Dataset` with `image_id`, `file_name`, `video` (of type `Video(decode=False)`: the path of the file),
        and, if known, `captions`. Processors choose the frames.

    Raises:
        DataError: no such folder or split, no videos in it, or metadata that cannot be read.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise DataError(f"{source} is no folder; give a folder of videos ({', '.join(VIDEO_SUFFIXES)}).")
    parts = read_folder(folder, lambda name: name.lower().endswith(VIDEO_SUFFIXES))
    if not any(map(len, parts.values())):
        raise DataError(f"{source} holds no videos (files that end in {', '.join(VIDEO_SUFFIXES)}).")
    part = find_split(split, parts)
    if part is None:
        raise MissingSplitError(f"{source} has no split {split!r}; there are {', '.join(parts)}.")
    name = f"{source}, split {split}"
    rows = make_rows(parts[part], find_columns(parts[part], source, None, captions), None, name, source)
    rows = rows.with_format(None).cast_column("image", Image(decode=False)).rename_column("image", "video")
    return rows.cast_column("video", Video(decode=False))
