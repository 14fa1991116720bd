"""Copies of features, extracted from the same images cropped, mirrored and recoloured at random.

```python
copies = FeatureCopies("features", "train", seed=0)
row = copies(row, epoch=3)  # with its own features, or those of one of its copies
```
"""

import os
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from .errors import DataError
from .row_formats import with_whole_arrays
from .saved import load_saved
from .seeded import generator_of

FOLDER = "copies"


def copy_folder(features: str | os.PathLike, number: int) -> Path:
    """Returns the folder of a copy, numbered from 1, in a folder of features."""
    return Path(features) / FOLDER / str(number)


class FeatureCopies:
    """Draws, in each epoch, the features of a row: its own or those of one of its copies.

    The draw depends on the seed, the epoch and the row's `image_id` alone, so that an epoch can be repeated exactly, by
    any number of workers and processes.

    Args:
        features: a folder with copies, as `hf-ngsan extract --copies N` writes it.
        split: split of the rows.
        seed: seed of the draw.

    Raises:
        DataError: the folder has no copies, or they cannot be read.
    """

    def __init__(self, features: str | os.PathLike, split: str, seed: int = 0) -> None:
        folders = list(takewhile(Path.is_dir, (copy_folder(features, number) for number in count(1))))
        if not folders:
            raise DataError(f"{features} has no copies of its features; make them with hf-ngsan extract --copies.")
        self.folders, self.seed = folders, seed
        self.copies = [with_whole_arrays(load_saved(str(folder), split)) for folder in folders]
        self.places = [{image_id: place for place, image_id in enumerate(rows["image_id"])} for rows in self.copies]

    def __call__(self, row: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        """Returns the row with its visual features and boxes of an epoch.

        Raises:
            DataError: the copy lacks the row's image.
        """
        chosen = int(generator_of(self.seed, epoch, row["image_id"], FOLDER).integers(len(self.copies) + 1))
        if chosen == len(self.copies):
            return dict(row)
        place = self.places[chosen].get(row["image_id"])
        if place is None:
            raise DataError(
                f"{self.folders[chosen]} has no features of image {row['image_id']}; repeat the extraction with "
                "--copies, which adds what is missing."
            )
        copy = self.copies[chosen][place]
        return {**row, **{name: copy[name] for name in ("visual_features", "visual_boxes") if name in copy}}
