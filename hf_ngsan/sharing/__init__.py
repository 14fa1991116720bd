"""Sharing models: the folder of a checkpoint as it goes to the Hub, its card, and its upload."""

from typing import TYPE_CHECKING

from ..ground.lazy import lazy_names

if TYPE_CHECKING:
    from .upload import UploadError, push_to_hub, upload_checkpoint
    from .upload_folder import check_checkpoint, write_checkpoint

__getattr__, __dir__, __all__ = lazy_names(__name__)
