"""Search among embeddings: a folder that keeps them, and what finds the nearest ones.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..ground.lazy import lazy_names

if TYPE_CHECKING:
    from .backends import Hit, SearchBackend, check_backend, open_backend, search
    from .exact import nearest
    from .index_folder import IndexDescription, IndexFolder, IndexFolderError, check_new_index

__getattr__, __dir__, __all__ = lazy_names(__name__)
