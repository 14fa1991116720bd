"""The demo: captioners of synthetic scenes that are trained, compared, shared and explained.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..ground.lazy import lazy_names

if TYPE_CHECKING:
    from .journey import COMPARED, main

__getattr__, __dir__, __all__ = lazy_names(__name__)
