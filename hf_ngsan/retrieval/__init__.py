"""Search among embeddings: the folder of an index, and the backends that search it."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .backends import ExactSearch, Hit, check_backend, nearest, open_backend, search, search_current
    from .index_folder import IndexDescription, IndexFolder, IndexFolderError, check_new_index
    from .milvus import IndexKind

__getattr__, __dir__, __all__ = lazy_names(__name__)
