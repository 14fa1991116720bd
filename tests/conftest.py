"""Settings of all tests, without network and user cache, and tiny models for many tests.

The folders of the session are saved once per process, when a test first needs them. A test that changes one copies it.
"""

import gzip
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

CACHE = tempfile.TemporaryDirectory(prefix="hf-ngsan-tests-")
"""Home of the Hugging Face libraries, one for each process; deleted when the process ends."""

os.environ["HF_HOME"] = CACHE.name
for name in ("HF_DATASETS_CACHE", "HF_EVALUATE_CACHE", "HF_HUB_CACHE", "HF_MODULES_CACHE"):
    os.environ.pop(name, None)
os.environ["HF_HUB_OFFLINE"] = os.environ["ORT_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SUITE_MARKERS = ("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test")

# The same examples in every run. HYPOTHESIS_PROFILE=random uses others; --hypothesis-seed repeats them.
settings.register_profile("fixed", settings.get_profile("ci"), derandomize=True)
settings.register_profile("random", settings.get_profile("ci"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_configure(config: pytest.Config) -> None:
    for marker in SUITE_MARKERS:
        config.addinivalue_line("markers", f"{marker}: set by transformers' common tests")
    config.addinivalue_line("markers", "deprecated_by_itself(start): what transformers logs of calls of its own")


@pytest.fixture(autouse=True)
def deprecations_in_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which transformers logs a deprecation; its warnings are errors already."""
    actual = []
    handler = logging.Handler()
    handler.emit = lambda record: actual.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    expected = request.node.get_closest_marker("deprecated_by_itself")
    actual = [message for message in actual if expected is None or not message.startswith(expected.args)]
    assert not [message for message in actual if "deprecated" in message]


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


@pytest.fixture(scope="session")
def use_small_meteor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[pytest.MonkeyPatch], None]:
    """Replaces METEOR's data by the few lines that the words of tests need, which are indexed quickly."""
    from hf_ngsan.metrics.meteor import shared_scorer

    package = tmp_path_factory.mktemp("small_meteor") / "pycocoevalcap"
    (package / "meteor" / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    with zipfile.ZipFile(package / "meteor" / "meteor-1.5.jar", "w") as jar:
        for name, text in METEOR_FILES.items():
            jar.writestr(name, text)
    table = "".join(f"0.1\n{phrase}\n{paraphrase}\n" for phrase, paraphrase in METEOR_PARAPHRASES)
    (package / "meteor" / "data" / "paraphrase-en.gz").write_bytes(gzip.compress(table.encode()))

    def use(patch: pytest.MonkeyPatch) -> None:
        patch.syspath_prepend(str(package.parent))
        patch.delitem(sys.modules, "pycocoevalcap", raising=False)
        patch.setattr("datasets.config.HF_DATASETS_CACHE", package.parent / "cache")
        shared_scorer.cache_clear()

    return use


@pytest.fixture
def small_meteor(use_small_meteor, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from hf_ngsan.metrics.meteor import shared_scorer

    use_small_meteor(monkeypatch)
    yield
    shared_scorer.cache_clear()


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training config of a tiny captioner of scenes, whose run is saved next to it."""
    import yaml

    from tests.tasks.tiny import tiny_sections

    folder = tmp_path_factory.mktemp("trained")
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", training={"epochs": 1})))
    return file


@pytest.fixture(scope="session")
def run(config: Path) -> Path:
    """The folder of the finished training run of `config`."""
    from hf_ngsan.cli import main

    assert main(["train", "--config", str(config)]) == 0
    return config.parent / "run"


@pytest.fixture(scope="session")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a captioner with a vision encoder, `pixel_captioner()`."""
    from hf_ngsan.loading.models import save_model
    from tests.models.tiny_photos import pixel_captioner, pixel_processor

    folder = tmp_path_factory.mktemp("captioners") / "captioner"
    save_model(pixel_captioner(), pixel_processor(), folder)
    return folder


@pytest.fixture(scope="session")
def scene_captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a captioner of the regions of scenes, without a vision encoder."""
    from hf_ngsan.loading.models import save_model
    from tests.models.tiny import tiny_captioner, tiny_processor

    folder = tmp_path_factory.mktemp("captioners") / "scene_captioner"
    save_model(tiny_captioner(visual_feature_size=10), tiny_processor(), folder)
    return folder


@pytest.fixture(scope="session")
def dual_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an MHSAN with a vision encoder."""
    from hf_ngsan.loading.models import save_model
    from tests.models.mhsan.tiny import VISION, tiny_model, tiny_processor

    folder = tmp_path_factory.mktemp("dual_encoders") / "mhsan"
    save_model(tiny_model(vision_config=VISION), tiny_processor(pixels=True), folder)
    return folder


@pytest.fixture(scope="session")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a vision encoder that gives 2 x 2 cells, with its image processor."""
    from tests.extraction.tiny import tiny_processor, tiny_vision

    folder = tmp_path_factory.mktemp("vision")
    tiny_vision().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a captioner or dual encoder of transformers by its name in `guests/tiny.py`."""
    from tests.guests.tiny import save, tiny

    folder = tmp_path_factory.mktemp("guests")
    return cache(lambda name: save(tiny(name), folder / name))


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files `photo0.png`, ... of `PHOTOS`, in a folder without other files."""
    from tests.models.tiny_photos import PHOTOS

    folder = tmp_path_factory.mktemp("photographs")
    files = [folder / f"photo{number}.png" for number in range(len(PHOTOS))]
    for photo, file in zip(PHOTOS, files, strict=True):
        photo.save(file)
    return files
