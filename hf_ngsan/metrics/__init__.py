"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package imports nothing heavy; each name is loaded when it is first used.
"""

import importlib

_HOMES = {
    "PTBTokenizer": "tokenization",
    "Bleu": "evaluation",
    "RougeL": "evaluation",
    "Cider": "evaluation",
    "CiderD": "evaluation",
    "CaptionMetrics": "evaluation",
    "DocumentFrequency": "document_frequency",
    "CiderDReward": "reward",
    "Meteor": "java",
    "Spice": "java",
}
_SUBMODULES = ("coco_files", "command", "diagnostics", "retrieval")

__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name):
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
