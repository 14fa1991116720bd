"""transformers' own common tests, from the source distribution of the installed version.

transformers installs no tests, but its source distribution has them. `python -m tests.transformers_suite` downloads it
through pip and keeps its `tests` folder under `build/`; without it the tests that build on the suite are skipped.
It leaves out the folders `generation` and `exporters`; HF_NGSAN_TRANSFORMERS_TESTS may name the `tests` of a git
checkout, which has them. `models/test_generation.py` and `exporting` replace them.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from types import ModuleType

import pytest
import transformers

PACKAGE = "transformers_tests"
MISSING = "transformers' own tests are not here; `python -m tests.transformers_suite` fetches them"
STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {
        "config_common_kwargs": {
            **{"chunk_size_feed_forward": 5, "dtype": "float16", "output_attentions": True},
            **{"output_hidden_states": True, "problem_type": "regression", "return_dict": False},
        }
    },
}

NOT_OURS = re.compile(
    "already_mapped|audio|axial|batched_and_grouped|chat_template|composite|keep_in_fp32|multimodal_tokens|num_images"
    "|position_vector|replacement_offsets|reverse_loading|rope|router|shift_labels|sliding_window|tp_plan|video"
)
"""Features that none of our models and processors has; the suite skips these tests itself."""
ATTENTION_ONLY = re.compile("attention|sdpa")
VARIANTS = re.compile("(sdpa_inference.*(fp16|bf16|kernels))|bc_torch_dtype")
"""Unusual number types and kernels, and names of old arguments: these are slow tests."""


def applies(item: pytest.Item) -> bool:
    """Returns whether a test of the suite applies to our models on this machine."""
    if not isinstance(item, pytest.Function) or not issubclass(item.cls or object, unittest.TestCase):
        return True
    if getattr(item.function, "__unittest_skip__", False) or NOT_OURS.search(item.name):
        return False
    lacks_attention = getattr(item.cls, "has_attentions", True) is False
    lacks_words = getattr(item.cls, "test_resize_embeddings", True) is False
    made_by = re.match("test_(get_(image|text)_features)", item.name)
    return not (
        (lacks_attention and ATTENTION_ONLY.search(item.name))
        or (lacks_words and "resize" in item.name)
        or (made_by and not any(hasattr(entry, made_by[1]) for entry in item.cls.all_model_classes))
    )


def suite_folder() -> Path:
    """The `tests` folder of the installed transformers version, which may not exist yet."""
    named = os.environ.get("HF_NGSAN_TRANSFORMERS_TESTS")
    repository = Path(__file__).parents[1]
    return Path(named) if named else repository / "build" / f"transformers-{transformers.__version__}" / "tests"


def is_available() -> bool:
    return (suite_folder() / "test_modeling_common.py").is_file()


def fetch_suite():
    """Downloads the source distribution and keeps its tests; does nothing if they exist."""
    if is_available():
        return
    target = suite_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        expected = f"transformers=={transformers.__version__}"
        options = ["--quiet", "--no-deps", "--no-binary", "transformers", "--dest", temporary]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, expected], check=True)
        [archive] = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as contents:
            tests = [member for member in contents if Path(member.name).parts[1:2] == ("tests",)]
            contents.extractall(temporary, members=tests, filter="data")
        [unpacked] = Path(temporary).glob("*/tests")
        (unpacked / "__init__.py").touch()
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


def import_suite(name: str) -> ModuleType:
    """Imports a module of the suite, e.g. `"test_modeling_common"`; files that the distribution omits are replaced."""
    if PACKAGE not in sys.modules:
        add_module(PACKAGE, __path__=[str(suite_folder())])
        add_module("fetch_hub_objects_for_ci", url_to_local_path=lambda url: url)
        for missing, content in STAND_INS.items():
            if not suite_folder().joinpath(*missing.split(".")).with_suffix(".py").is_file():
                add_module(f"{PACKAGE}.{missing.split('.')[0]}", __path__=[])
                add_module(f"{PACKAGE}.{missing}", **content)
    return importlib.import_module(f"{PACKAGE}.{name}")


def add_module(name: str, **content):
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


if __name__ == "__main__":
    try:
        fetch_suite()
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        sys.exit(f"The common tests of transformers {transformers.__version__} could not be fetched: {error}")
