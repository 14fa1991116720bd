"""Caption metrics by name. Importing this module imports none of them, so the command line can list them quickly.

```python
register_metric("length_ratio", "my_module:LengthRatio")  # a class, or the module and name of one
CaptionMetrics(metrics=["cider_d", "length_ratio"])
```
"""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .evaluation import CaptionMetric

MetricMaker: TypeAlias = "str | Callable[[], CaptionMetric]"
DEFAULT_METRICS = ("cider_d", "bleu", "rouge_l", "cider")
CLASSES = {"cider_d": "CiderD", "bleu": "Bleu", "rouge_l": "RougeL", "cider": "Cider", "meteor": "Meteor"}
METRICS: dict[str, MetricMaker] = {name: f"hf_ngsan.metrics.evaluation:{kind}" for name, kind in CLASSES.items()}


def register_metric(name: str, metric: MetricMaker) -> None:
    """Adds a caption metric to [`CaptionMetrics`], `hf-ngsan score` and `hf-ngsan evaluate --metrics`.

    Args:
        name: name for selecting it; the names of its scores may differ.
        metric: a subclass of [`CaptionMetric`], or a function without arguments that returns one; or its
            `"module:name"`, which is imported on first use.

    Raises:
        ValueError: another metric has this name.
    """
    if METRICS.get(name, metric) != metric:
        raise ValueError(f"A metric {name!r} already exists; choose another name.")
    METRICS[name] = metric


def make_metric(name: str) -> "CaptionMetric":
    """Returns a metric by name; raises a ValueError for an unknown name."""
    if name not in METRICS:
        raise ValueError(f"Unknown metric {name!r}; choose from {', '.join(METRICS)}.")
    metric = METRICS[name]
    return (resolve_name(metric) if isinstance(metric, str) else metric)()
