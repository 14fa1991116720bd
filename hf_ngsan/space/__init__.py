"""A web page that captions photographs, finds images by words, and shows what geometry does.

It needs Gradio, which the extra `demo` brings.
"""

from .page import launch, make_page
from .parts import Parts, Search, load_parts
