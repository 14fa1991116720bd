"""Figures that explain models: attention maps of words, geometric biases, visualness and heads.

```python
save_figure(plot_word_maps(image, answer["words"], answer["attention"]), "words.png")
```

Names are imported when they are used. Figures need matplotlib (extra `plots`) and otherwise raise a
`MissingPlotsError`. Arrays with wrong shapes raise a ValueError.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
