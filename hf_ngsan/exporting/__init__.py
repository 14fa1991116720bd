"""Export of captioners to ONNX, OpenVINO or torch.export, with a program that captions from the exported files.

It needs the packages of the extra `export` or `openvino`, which are imported when something is exported. Names are
imported when used, as engines need the graphs alone.
"""

from typing import TYPE_CHECKING

from ..io.lazy import lazy_names

if TYPE_CHECKING:
    from .captioner import Captioner
    from .checking import Comparison, compare
    from .folder import write_exported_captioner
    from .formats import FORMATS, MissingExporterError, UnexportableError, check_format

__getattr__, __dir__, __all__ = lazy_names(__name__)
