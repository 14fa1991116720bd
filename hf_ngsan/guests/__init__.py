"""Captioners and dual encoders of transformers itself (BLIP, GIT, CLIP, ...), described once each."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .captioners import Guest, guest_of, register_guest
    from .dual_encoders import DualEncoder, dual_encoder_of

__getattr__, __dir__, __all__ = lazy_names(__name__)
