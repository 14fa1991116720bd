"""Figures that explain models: attention maps of words, geometric biases, visualness and heads.

```python
save_figure(plot_word_maps(image, answer["words"], answer["attention"]), "words.png")
```

Names are imported when used. Figures need matplotlib (extra `plots`), or raise a `MissingPlotsError`; a ValueError says
where arrays do not fit each other.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
