"""Settings of the whole test run: no network, no cache of the person's, and one order of work whatever the machine."""

import logging
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

CACHE = tempfile.TemporaryDirectory(prefix="hf-ngsan-tests-")
"""Home of the Hugging Face libraries, one for each process of the run; deleted when the process ends."""

os.environ["HF_HOME"] = CACHE.name
for name in ("HF_DATASETS_CACHE", "HF_EVALUATE_CACHE", "HF_HUB_CACHE", "HF_MODULES_CACHE"):
    os.environ.pop(name, None)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SUITE_MARKERS = ("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test")

# The same examples in every run. HYPOTHESIS_PROFILE=random draws others, with --hypothesis-seed the same ones again.
settings.register_profile("fixed", settings.get_profile("ci"), derandomize=True)
settings.register_profile("random", settings.get_profile("ci"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_configure(config: pytest.Config) -> None:
    for marker in SUITE_MARKERS:
        config.addinivalue_line("markers", f"{marker}: set by transformers' common tests")
    config.addinivalue_line("markers", "deprecated_by_itself(start): what transformers logs of calls of its own")


@pytest.fixture(autouse=True)
def deprecations_in_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which transformers logs that something is deprecated; its warnings are errors by themselves."""
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    expected = request.node.get_closest_marker("deprecated_by_itself")
    found = [message for message in found if expected is None or not message.startswith(expected.args)]
    assert not [message for message in found if "deprecated" in message]
