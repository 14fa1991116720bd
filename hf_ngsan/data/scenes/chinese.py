"""Captions of synthetic scenes in Chinese: a language without spaces, in which the relation comes last.

```python
in_chinese("the red circle lies left of the blue square")  # "红色圆形位于蓝色方块左边"
in_english("红色圆形位于蓝色方块左边")  # "the red circle lies left of the blue square"
```
"""

import re

from .relations import COLOURS, SHAPES, Statement

NAMES = dict(zip(COLOURS, ("红色", "绿色", "蓝色", "黄色", "紫色", "黑色"), strict=True))
NAMES |= dict(zip(SHAPES, ("圆形", "三角形", "星形", "方块"), strict=True))
VERBS = {"stays": "待在", "rests": "压着", "looks": "看上去比", "stands": "立在", "lies": "位于", "hangs": "挂在"}
RELATIONS = {
    "near": "附近",
    "far from": "远处",
    "overlapping": "边缘",
    "inside": "中间",
    "larger than": "大",
    "smaller than": "小",
    "beside": "旁边",
    "stacked with": "同一列",
    "left of": "左边",
    "right of": "右边",
    "above": "上方",
    "below": "下方",
}
OBJECT = rf"((?:{'|'.join(NAMES[name] for name in COLOURS)})(?:{'|'.join(NAMES[name] for name in SHAPES)}))"
CAPTION = re.compile(rf"{OBJECT}({'|'.join(VERBS.values())}){OBJECT}({'|'.join(RELATIONS.values())})")
ENGLISH = {chinese: english for words in (NAMES, VERBS, RELATIONS) for english, chinese in words.items()}


def in_chinese(caption: str) -> str:
    """Returns a caption of a scene in Chinese."""
    statement = Statement.parse(caption)
    assert statement is not None, caption
    return prompt_in_chinese(caption) + RELATIONS[statement.relation]


def prompt_in_chinese(caption: str) -> str:
    """Returns the beginning of a caption in Chinese, up to its relation."""
    statement = Statement.parse(caption)
    assert statement is not None, caption
    subject, other = ("".join(NAMES[word] for word in name.split()) for name in (statement.subject, statement.other))
    return f"{subject}{VERBS[statement.family.verb]}{other}"


def in_english(caption: str) -> str:
    """Returns a caption in English, as far as it is one of a scene; else as it is."""
    parts = CAPTION.fullmatch(caption)
    if parts is None:
        return caption
    subject, other = (f"{ENGLISH[name[:2]]} {ENGLISH[name[2:]]}" for name in (parts[1], parts[3]))
    return f"the {subject} {ENGLISH[parts[2]]} {ENGLISH[parts[4]]} the {other}"
