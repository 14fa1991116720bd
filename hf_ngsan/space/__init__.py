"""A web page that captions photographs, searches images and shows the effect of geometry on captions.

The page needs Gradio (extra `demo`).
"""

from .page import launch, make_page
from .parts import Parts, Search, load_parts
