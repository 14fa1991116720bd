"""Export of captioners to ONNX, OpenVINO or torch.export, with a program that captions from the exported files; and
engines that run vision encoders in place of PyTorch.

It needs the packages of the extra `export` or `openvino`, which are imported when something is exported.
"""

from .captioner import Captioner
from .checking import Comparison, compare
from .engines import EngineError, use_engine
from .folder import write_exported_captioner
from .formats import FORMATS, MissingExporterError, UnexportableError, check_format
