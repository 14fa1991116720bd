"""Pictures to click on: photographs that the page's dependencies bring, and a drawn scene."""

import html
from pathlib import Path

from PIL import Image

from ..data.scenes import draw_scene, make_scene
from ..io.packaged import installed_photographs
from ..models.image_processing_captioning import load_image
from .captions import SHOWN_SIDE, data_url

EXAMPLES = ("officer", "lion")
SCENE_SEED = 3

STYLE = Path(__file__).with_name("examples.css").read_text(encoding="utf-8")
SCRIPT = Path(__file__).with_name("examples.js").read_text(encoding="utf-8")


def example_images() -> dict[str, Image.Image]:
    """Returns the pictures by what they show: the photographs of installed packages, then a scene."""
    files = installed_photographs()
    found = {name: load_image(files[name].read_bytes(), name) for name in EXAMPLES if name in files}
    found["drawn scene"] = draw_scene(make_scene(SCENE_SEED), size=SHOWN_SIDE // 2)
    return found


def buttons(images: dict[str, Image.Image]) -> str:
    """Returns a small picture to click for each image; the script uploads it as a user uploads a photograph."""
    made = []
    for name, image in images.items():
        shown = image.convert("RGB")
        shown.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
        label = html.escape(name)
        made.append(
            f'<button type="button" title="{label}"><img alt="{label}" src="{data_url(shown, "JPEG")}"></button>'
        )
    return f'<p class="hint">or try one of these:</p><div class="examples">{"".join(made)}</div>'
