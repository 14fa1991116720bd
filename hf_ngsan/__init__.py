"""Geometry-aware image captioning and image-text retrieval for Hugging Face transformers.

Importing the package registers its models with transformers' Auto classes and pipelines. The command line registers
them only when it loads a model, because many of its commands do not need torch.
"""

from lazy_loader import attach_stub

from .registry import is_command_line, register

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

if not is_command_line():
    register()
