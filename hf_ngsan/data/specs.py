"""One short string names a data set everywhere: in Python, in configuration files and on the command line."""

import os
from inspect import signature

from .errors import DataError

_SPECS = "scenes, scenes:size=2000,seed=1, coco-layout:DIR, features:DIR"
_ALIASES = {"val": "validation"}


def load_data(spec, split):
    """Load one split of the data set that a spec names.

    - `scenes`, `scenes:KEY=VALUE,…`: synthetic scenes; keys are the arguments of `load_scenes`, e.g.
      `scenes:size=2000,seed=1`.
    - `coco-layout:DIR`: `instances_NAME.json` and `captions_NAME.json`; see `load_coco_layout`.
    - `features:DIR`: a folder written by `datasets`' `save_to_disk`, either a `DatasetDict` of splits or a `Dataset`
      with a column `split`; checked against the contract at the first loading.

    Args:
        spec: the data set.
        split: `train`, `validation` (or `val`), `test`, or any other that exists.

    Returns:
        `datasets.Dataset`, memory-mapped, whose rows follow the feature contract; features and boxes are read as
        float32 arrays, the other columns as Python objects.

    Raises:
        DataError: an unknown spec, key or split, or data that cannot be used.
    """
    if not isinstance(spec, str):
        raise DataError(f"The data spec is {spec!r}; it must be text, one of {_SPECS}.")
    kind, _, argument = spec.partition(":")
    split = _ALIASES.get(split, split)
    if kind == "scenes":
        from .scenes import load_scenes

        return load_scenes(split, **_parse_keys(spec, argument, load_scenes))
    if kind in ("coco-layout", "features"):
        if not argument:
            raise DataError(f"The data spec {spec!r} names no folder; write {kind}:DIR.")
        directory = os.path.expanduser(argument)
        if kind == "coco-layout":
            from .coco import load_coco_layout

            return load_coco_layout(directory, split)
        from .saved import load_saved

        return load_saved(directory, split)
    raise DataError(f"Unknown data spec {spec!r}; a spec is one of {_SPECS}.")


def _parse_keys(spec, text, function):
    """The keyword arguments of `function` from `key=value,key=value`."""
    known = {name: parameter for name, parameter in signature(function).parameters.items() if name != "split"}
    values = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise DataError(f"In the data spec {spec!r}, {part!r} is not KEY=VALUE; keys are {', '.join(known)}.")
        if key not in known:
            raise DataError(f"In the data spec {spec!r}, {key!r} is not a key; there are {', '.join(known)}.")
        if key in values:
            raise DataError(f"In the data spec {spec!r}, {key!r} is given twice; give it once.")
        values[key] = _parse_flag(spec, key, value) if known[key].default is False else _parse_integer(spec, key, value)
    return values


def _parse_flag(spec, key, value):
    if value.lower() not in ("true", "false"):
        raise DataError(f"In the data spec {spec!r}, {key} is {value!r}; it must be true or false.")
    return value.lower() == "true"


def _parse_integer(spec, key, value):
    try:
        return int(value)
    except ValueError:
        raise DataError(f"In the data spec {spec!r}, {key} is {value!r}; it must be a whole number.") from None
