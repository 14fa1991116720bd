"""Datasets of images with captions, memory-mapped or streamed.

load_images("flickr8k", "train")[0]  # {"image_id": 0, "image": <PIL image>, "captions": [...], ...}
"""

import pyarrow as pa
from datasets import Dataset

from ..errors import DataError, reason_of
from .columns import find_columns
from .rows import make_rows
from .sources import is_folder_of_photographs, open_split
from .streaming import stream_images

SHUFFLE_BUFFER = 1000


def load_images(
    source: str,
    split: str,
    *,
    image: str | None = None,
    captions: str | None = None,
    config: str | None = None,
    streaming: bool = False,
    shuffle_buffer: int = SHUFFLE_BUFFER,
) -> Dataset:
    """Loads one split of a dataset of images, with captions if it has any.

    Captions are in a column of lists, in several columns, or in a column of strings; rows with one string each are
    merged if they show the same image: the same id, else the same file name, else the same bytes or path. Images
    without a caption are left out, unless no image has one.

    The id of an image comes from its id column; else from the number at the end of its file name, if these numbers are
    unique; else it is the number of its row.

    Args:
        source: a folder of photographs ([`~folder.read_folder`]), one written by `save_to_disk` or that `load_dataset`
            reads, such as of Parquet files; one of WebDataset's tar files ([`~tar_files.open_tar_files`]); a Parquet
            or tar file; or the name of a dataset on the Hub. No other files than those of the dataset are opened
            ([`~own_files.OwnFiles`]).
        split: `train`, `validation` (or `val`), `test`, or any other that exists.
        image: the column of images, their bytes or the paths of their files; found by type and name if None.
        captions: the column of captions, or several with `+` between; found by name if None.
        config: which of several configurations of the dataset.
        streaming: whether the images are read from beginning to end in each epoch, and nothing is prepared on the disk;
            see [`~streaming.stream_images`].
        shuffle_buffer: rows of a stream that are shuffled together and held in memory.

    Returns:
        `datasets.Dataset`, memory-mapped, with `image_id`, `image` (decoded when it is read, as `PIL.Image.Image`) and,
        if known, `captions`, `file_name`, `width` and `height`. Reading a damaged image raises a [`DataError`] that
        names its row.

    Raises:
        DataError: there is no such dataset, split or column, or it cannot be read.
    """
    name = f"{source}, split {split}"
    try:
        if streaming and not is_folder_of_photographs(source, config):  # which is read in place anyway
            return stream_images(source, split, image, captions, config, shuffle_buffer)
        dataset, numbers = open_split(source, split, config)
        if not len(dataset):
            raise DataError(f"{name}: the dataset has no rows.")
        return make_rows(dataset, find_columns(dataset, source, image, captions), numbers, name, source)
    except (pa.ArrowException, UnicodeError, OSError) as error:
        raise DataError(f"{name}: the rows cannot be read ({reason_of(error)}); write the dataset again.") from error
