"""A web page that captions photographs, finds images by words, and shows what geometry does.

It needs Gradio (the extra `demo`), which is imported when the page is made.
"""

from typing import TYPE_CHECKING

from ..ground.lazy import lazy_names

if TYPE_CHECKING:
    from .page import launch, make_page
    from .parts import Parts, Search, load_parts

__getattr__, __dir__, __all__ = lazy_names(__name__)
