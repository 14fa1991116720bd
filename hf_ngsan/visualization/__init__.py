"""Figures that explain models: attention maps of words, geometric biases, visualness and heads.

```python
save_figure(plot_word_maps(image, answer["words"], answer["attention"]), "words.png")
```

Names are imported when used. Figures need matplotlib (extra `plots`), or raise a `MissingPlotsError`; a ValueError says
where arrays do not fit each other.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .figures import (
        plot_caption,
        plot_contact_sheet,
        plot_counterfactual,
        plot_frame_attention,
        plot_question,
        plot_regions,
        plot_visual_words,
        plot_visualness,
        plot_word_maps,
    )
    from .geometry import geometric_weights, plot_geometric_bias, plot_geometric_weights
    from .heads import Match, explain_match, plot_match
    from .plots import MissingPlotsError, check_matplotlib, plot_training_curve, save_figure

__getattr__, __dir__, __all__ = lazy_names(__name__)
