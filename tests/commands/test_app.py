"""`hf-ngsan app`: the page of a captioner, until Ctrl-C."""

import sys
from types import SimpleNamespace

import pytest

from tests.commands.running import fails, prints


def test_the_page_is_open_until_ctrl_c(captioner, monkeypatch, capsys):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    output = []

    def interrupt():
        raise KeyboardInterrupt

    def make_page(parts):
        return SimpleNamespace(close=lambda verbose: output.append(parts))

    def launch(page, host, port, allowed_hosts):
        output.append((host, port, allowed_hosts))
        return "http://127.0.0.1:7860"

    monkeypatch.setattr(
        "hf_ngsan.commands.app.threading", SimpleNamespace(Event=lambda: SimpleNamespace(wait=interrupt))
    )
    monkeypatch.setattr("hf_ngsan.space.page.make_page", make_page)
    monkeypatch.setattr("hf_ngsan.space.page.launch", launch)
    assert "http://127.0.0.1:7860" in prints(capsys, "app", "--model", captioner, "--allowed-host", "captions.example")
    assert output[0] == ("127.0.0.1", None, ["captions.example"]) and output[1].name == str(captioner)
    monkeypatch.setitem(sys.modules, "hf_ngsan.space.page", None)
    assert "hf-ngsan[demo]" in fails(capsys, "app", "--model", captioner)
