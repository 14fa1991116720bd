"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package imports nothing heavy; each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from . import diagnostics, retrieval, vqa
    from .cider import CiderDReward, DocumentFrequency
    from .clip_score import ClipScore
    from .comparison import compare_captions
    from .evaluation import Bleu, CaptionMetric, CaptionMetrics, Cider, CiderD, Meteor, RougeL
    from .registry import register_metric
    from .tokenization import PTBTokenizer

__getattr__, __dir__, __all__ = lazy_names(__name__)
