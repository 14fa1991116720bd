"""Trained models that come with the package, by name.

```python
pipeline("image-to-text", model=packaged_model("ngsan-flickr8k"))
```
"""

import os
from pathlib import Path
from typing import Any

from .packaged_files import packaged_folder

CAPTIONER = "ngsan-flickr8k"
"""The default captioner of photographs."""
DUAL_ENCODER = "mhsan-flickr8k"
"""The default dual encoder of photographs and captions."""
CAPTIONERS_OF_SCENES = {
    "SAN": "san-scenes",
    "NG-SAN": "ngsan-scenes",
    "NG-SAN signed": "ngsan-signed-scenes",
}
"""Captioners of synthetic scenes: without geometry, with that of the paper, and with its sign."""


def packaged_models() -> dict[str, Path]:
    """Returns the folders of the trained models by name."""
    folder = packaged_folder("checkpoints", "checkpoints")
    return {file.parent.name: file.parent for file in sorted(folder.glob("*/config.json"))}


def packaged_model(name: str) -> str:
    """Returns the folder of a packaged model, which every `from_pretrained` and `pipeline` takes.

    Raises:
        ValueError: no packaged model has this name; the message lists their names.

    Example:

    ```python
    >>> from pathlib import Path
    >>> from hf_ngsan import packaged_model
    >>> Path(packaged_model("ngsan-flickr8k")).name
    'ngsan-flickr8k'

    ```
    """
    found = packaged_models()
    if name not in found:
        raise ValueError(f"There is no packaged model {name!r}; there are {', '.join(found)}.")
    return str(found[name])


def folder_of_packaged(name: Any) -> Any:
    """Returns the folder of a packaged model by name; returns another name, or an existing path, unchanged."""
    if not isinstance(name, str | os.PathLike) or os.path.exists(name):
        return name
    folder = packaged_models().get(str(name))
    return name if folder is None else str(folder)
