"""Settings of the whole test run: no network, no cache of the person's, and one order of work whatever the machine."""

import gzip
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

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


METEOR_FILES = {
    "function/english.words": "a\nthe\nof\nis\nin\n's\n",
    "synonym/english.synsets": "auto\n1\ncar\n1\nride\n2\nriding\n2\ndog\n3\near\n4\ndrive\n2\nswim\n5\n",
    "synonym/english.exceptions": "ride\nridden rode\n",
    "nonbreaking/english.prefixes": "#titles\nMr\nBlvd\nNo #NUMERIC_ONLY#\n",
}
METEOR_PARAPHRASES = [
    *[("ear", "ears"), ("ears", "ear"), ("dog", "dogs"), ("dogs", "dog"), ("man", "person")],
    *[("riding", "of using the road"), ("riding", "road"), ("riding", "the road"), ("riding", "using the road")],
]


@pytest.fixture
def small_meteor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In place of METEOR's data, the few lines of them that the words of tests need: these are indexed in no time."""
    from hf_ngsan.metrics.meteor import shared_scorer

    package = tmp_path / "small_meteor" / "pycocoevalcap"
    (package / "meteor" / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    with zipfile.ZipFile(package / "meteor" / "meteor-1.5.jar", "w") as jar:
        for name, text in METEOR_FILES.items():
            jar.writestr(name, text)
    table = "".join(f"0.1\n{phrase}\n{paraphrase}\n" for phrase, paraphrase in METEOR_PARAPHRASES)
    (package / "meteor" / "data" / "paraphrase-en.gz").write_bytes(gzip.compress(table.encode()))
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "pycocoevalcap", raising=False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "small_meteor" / "cache")
    shared_scorer.cache_clear()
    yield
    shared_scorer.cache_clear()
