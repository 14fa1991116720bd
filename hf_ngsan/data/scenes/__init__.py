"""Synthetic scenes: coloured shapes, features of appearance alone, captions decided by geometry alone, and scores.

```python
rows = load_scenes("train", size=2000)
rows[0]["captions"][0]  # "the red circle lies left of the blue square"
draw_scene(rows[0]).show()
```
"""

from .drawing import draw_scene
from .generator import FEATURE_SIZE, Scene, make_scene
from .relations import COLOURS, FAMILIES, LANDMARK, SHAPES, Family, Statement
from .rows import load_scenes
from .scoring import RelationPrompt, relation_prompts, score_objects, score_relation_completions, score_relations

__all__ = [
    "COLOURS",
    "FAMILIES",
    "FEATURE_SIZE",
    "LANDMARK",
    "SHAPES",
    "Family",
    "RelationPrompt",
    "Scene",
    "Statement",
    "draw_scene",
    "load_scenes",
    "make_scene",
    "relation_prompts",
    "score_objects",
    "score_relation_completions",
    "score_relations",
]
