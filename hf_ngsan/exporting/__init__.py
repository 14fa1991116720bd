"""Export of captioners to ONNX, OpenVINO or torch.export, with a program that captions from the exported files.

It needs the packages of the extra `export` or `openvino`, which are imported when something is exported.
"""

from .captioner import Captioner
from .checking import Comparison, compare
from .folder import write_exported_captioner
from .formats import FORMATS, MissingExporterError, UnexportableError, check_format
