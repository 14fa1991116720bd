"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package imports nothing heavy; each name is loaded when it is first used.
"""

from ..ground.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "document_frequency": ["DocumentFrequency"],
        "evaluation": ["Bleu", "RougeL", "Cider", "CiderD", "CaptionMetrics"],
        "java": ["Meteor", "Spice"],
        "reward": ["CiderDReward"],
        "tokenization": ["PTBTokenizer"],
    },
    submodules=("average_precision", "diagnostics", "results", "retrieval", "vqa"),
)
