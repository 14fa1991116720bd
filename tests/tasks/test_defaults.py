"""Changed defaults change training, scores and models: `defaults.yaml` has all defaults that affect results."""

import dataclasses
import inspect
from pathlib import Path
from pkgutil import resolve_name

import yaml

from hf_ngsan.registry import model_class
from hf_ngsan.tasks.registry import TASKS, task_class
from tests.tables import each_row

TABLE = yaml.safe_load(Path(__file__).with_name("defaults.yaml").read_text())


def listed(value):
    return list(value) if isinstance(value, tuple) else value


@each_row("task", TASKS)
def test_training_configs(task):
    config, expected = task_class(task).config_class(), {}
    for section, values in TABLE["tasks"][task].items():
        is_stage = section in ("self_critical", "distillation") or section.endswith("_stage")
        expected[section] = {**(TABLE["each further stage"] if is_stage else {}), **values}
    for section, values in TABLE["all tasks"].items():
        expected[section] = {**values, **expected.get(section, {})}
    for section in config.sections():
        values = dataclasses.asdict(getattr(config, section))
        assert {key: listed(value) for key, value in values.items()} == expected[section], section


@each_row("model_type", TABLE["models"])
def test_models(model_type):
    config, expected = model_class(model_type, "AutoConfig")(), TABLE["models"][model_type]
    assert {name: listed(getattr(config, name)) for name in expected} == expected


@each_row("function", TABLE["functions"])
def test_functions(function):
    parameters, expected = inspect.signature(resolve_name(function)).parameters, TABLE["functions"][function]
    assert {name: listed(parameters[name].default) for name in expected} == expected


@each_row("name", TABLE["constants"])
def test_constants(name):
    assert resolve_name(name) == TABLE["constants"][name]
