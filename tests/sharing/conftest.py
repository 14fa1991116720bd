from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from tests.hub_stub import WRITER, Hub, hub


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub for this process, with a token that may write, and without the pauses of the client."""
    with hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr("transformers.utils.hub._hf_api", None)  # it uses another endpoint
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", WRITER)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        yield server
