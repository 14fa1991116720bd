"""Captions of a long list of images in parts, each a file of its own, so that a run that was killed resumes.

```python
parts = CaptionParts(model, processor, paths, paths, Path("captions.parts"), line=str)
for lines, errors in parts.caption(RayWorkers()):
    print(*lines, sep="\n")
```
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...ground.files import write_text_atomically
from ...ground.progress_display import ProgressDisplay
from ...ground.ray_workers import RayWorkers
from ...loading.provenance import model_fingerprint
from ...store.fields import read_json_or_none
from .captioned_image import CaptionedImage, skipped_error
from .images import caption_images

SETTINGS = "settings.json"


@dataclass
class CaptionParts:
    """A list of images that workers caption part by part.

    Attributes:
        model, processor: a captioner in evaluation mode.
        images: paths, or rows of a dataset.
        names: names of the images.
        folder: folder of the parts, which stays until [`remove`]; parts made with other settings are removed first.
        line: returns the text of a caption.
        skips_errors: whether images that cannot be read are skipped.
        batch_size: images captioned together.
        arguments: further arguments of [`caption_images`].
        images_per_part: rounded to a multiple of the batch size, so that batches do not depend on parts.
    """

    model: PreTrainedModel
    processor: ProcessorMixin
    images: Sequence[str] | Dataset
    names: list[str]
    folder: Path
    line: Callable[[CaptionedImage], str]
    skips_errors: bool = False
    batch_size: int = 64
    arguments: Mapping[str, Any] = field(default_factory=dict)
    images_per_part: int = 256

    def __post_init__(self) -> None:
        self.images_per_part = max(self.images_per_part // self.batch_size, 1) * self.batch_size

    def caption(self, ray: RayWorkers) -> Iterator[tuple[list[str], list[str]]]:
        """Captions all images, then yields, part by part, the lines of captions and the reasons of skipped images.

        Raises:
            ValueError: an image cannot be read and is not to be skipped.
            RayError, MissingRayError: see [`~hf_ngsan.ground.ray_workers.RayWorkers.share`].
        """
        self.begin()
        missing = [number for number in self.numbers() if not self.file(number).is_file()]
        before = len(self.names) - sum(len(self.places(number)) for number in missing)
        with ProgressDisplay("captioning", len(self.names), before) as display:
            done = before
            for place in ray.share(self.model, self.write, missing):
                done += len(self.places(missing[place]))
                display.update(done)
        for number in self.numbers():
            part = json.loads(self.file(number).read_text(encoding="utf-8"))
            yield part["lines"], part["errors"]

    def begin(self) -> None:
        settings = {
            "model": model_fingerprint(self.model, self.processor),
            "generation": hashlib.sha256(self.model.generation_config.to_json_string().encode()).hexdigest(),
            "images": hashlib.sha256(json.dumps([self.names, self.stamps()]).encode()).hexdigest(),
            "line": repr(self.line.keywords if isinstance(self.line, partial) else self.line.__name__),
            "arguments": {name: repr(value) for name, value in self.arguments.items()},
            "images_per_part": self.images_per_part,
            "batch_size": self.batch_size,
        }
        file = self.folder / SETTINGS
        if read_json_or_none(file) != settings:
            self.remove()
            write_text_atomically(file, json.dumps(settings, indent=2))

    def stamps(self) -> list[tuple[int, int]]:
        """Returns size and time of change of the files that the images are in."""
        if isinstance(self.images, Dataset):
            files = [Path(one["filename"]) for one in self.images.cache_files]
        else:
            files = [Path(one) for one in self.images]
        found = [file.stat() for file in files if file.is_file()]
        return [(one.st_size, one.st_mtime_ns) for one in found]

    def write(self, number: int) -> None:
        """Captions the images of a part."""
        places = self.places(number)
        if isinstance(self.images, Dataset):
            images: Any = self.images.select(places)
        else:
            images = [self.images[place] for place in places]
        names = [self.names[place] for place in places]
        lines, errors = [], []
        options = {"on_error": "skip", "batch_size": self.batch_size, **self.arguments}
        for found in caption_images(self.model, self.processor, images, names, **options):
            if found.error is not None:
                errors.append(skipped_error(found.error, self.skips_errors))
            lines.append(self.line(found))
        write_text_atomically(self.file(number), json.dumps({"lines": lines, "errors": errors}))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def places(self, number: int) -> range:
        """Returns the places of the images of a part."""
        return range(len(self.names))[number * self.images_per_part :][: self.images_per_part]

    def numbers(self) -> range:
        return range(-(-len(self.names) // self.images_per_part))

    def file(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.json"
