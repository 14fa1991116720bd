"""Export of captioners and dual encoders to ONNX, with a program that captions from the exported files."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .captioner import Captioner
    from .folder import MAX_DIFFERENCE, compare, write_exported_captioner, write_exported_dual_encoder
    from .graphs import UnexportableError, check_exporter

__getattr__, __dir__, __all__ = lazy_names(__name__)
