"""Search among embeddings: a folder that keeps them, and what finds the nearest ones.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .exact import nearest
    from .index_folder import Hit, IndexDescription, IndexFolder, IndexFolderError

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "exact": ["nearest"],
        "index_folder": ["Hit", "IndexDescription", "IndexFolder", "IndexFolderError"],
    },
)
