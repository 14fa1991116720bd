from pathlib import Path

import pytest
import yaml

from hf_ngsan.cli import main
from tests.metrics.conftest import metric_reference  # noqa: F401
from tests.tasks.tiny import tiny_sections


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training config of a tiny captioner, whose run goes next to it."""
    folder = tmp_path_factory.mktemp("cli")
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", training={"epochs": 1})))
    return file


@pytest.fixture(scope="session")
def run(config: Path) -> Path:
    """The folder of a finished training run, which tests leave as it is."""
    assert main(["train", "--config", str(config)]) == 0
    return config.parent / "run"
