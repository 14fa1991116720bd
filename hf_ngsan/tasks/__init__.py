"""What models are trained for: each task knows its rows, models, objectives and scores.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .attached_vision import attach_vision
    from .caption_evaluation import Evaluation, evaluate_captioner
    from .caption_generation import caption_batch, generate_captions
    from .captioned_images import CaptionedImage, caption_images
    from .captioning import CaptioningTask
    from .captioning_recipe import CaptioningRecipe
    from .new_captioners import new_captioner
    from .registry import load_recipe, register_task, task_class, train

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "attached_vision": ["attach_vision"],
        "caption_evaluation": ["Evaluation", "evaluate_captioner"],
        "captioned_images": ["CaptionedImage", "caption_images"],
        "caption_generation": ["caption_batch", "generate_captions"],
        "captioning": ["CaptioningTask"],
        "captioning_recipe": ["CaptioningRecipe"],
        "new_captioners": ["new_captioner"],
        "registry": ["load_recipe", "register_task", "task_class", "train"],
    },
)
