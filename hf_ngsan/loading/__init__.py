"""Models from folders and the Hub, with their preprocessing and the provenance of their features; saving with code."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .engines import use_engine
    from .hub import save_for_hub
    from .models import ModelFolderError, find_model_folder, load_captioner, load_config, load_model, save_model

__getattr__, __dir__, __all__ = lazy_names(__name__)
