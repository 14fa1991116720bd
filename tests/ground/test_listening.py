"""Hosts to listen at: addresses and names, none that stands for all addresses unseen."""

import socket

import pytest

from hf_ngsan.ground.listening import check_host, listen, url_of
from tests.commands.running import fails
from tests.tables import each_row

NO_HOSTS = ["", " ", "0", "00", "0x0", "127.1", "1.2.3", "256.1.1.1", "0.0.0.0 ", "[::]", "*", "a b", "http://x", "é"]


@each_row("host", [*NO_HOSTS, "\0", "\n", "a" * 300, "127.0.0.1\n", "0x7f.1", "\ud800"])
def test_what_is_no_host(host):
    with pytest.raises(ValueError, match="host"):
        check_host(host)
    with pytest.raises(ValueError, match="host"):
        listen(host, 0)


@each_row("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "my-host.example"])
def test_hosts(host):
    check_host(host)


def test_a_name_for_all_addresses_is_told(monkeypatch):
    """A resolver may know such a name."""
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda address, **more: create(("0.0.0.0", 0), **more))
    with pytest.raises(ValueError, match=r"0\.0\.0\.0"):
        listen("everywhere", 0)


def test_where_nobody_can_listen():
    with listen("127.0.0.1", 0) as taken:
        for host, port in (("192.0.2.1", 0), ("127.0.0.1", taken.getsockname()[1]), ("nowhere.invalid", 0)):
            with pytest.raises(OSError, match=host) as raised:
                listen(host, port)
            assert len(str(raised.value).splitlines()) == 1


def test_urls():
    assert url_of("127.0.0.1", 80) == "http://127.0.0.1:80" and url_of("::1", 80) == "http://[::1]:80"


@each_row("host", ["", "0", "127.1"])
def test_the_server_tells_it_before_it_loads_a_model(capsys, host):
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    pytest.importorskip("python_multipart", reason="the extra serve is not installed")
    assert "127.0.0.1" in fails(capsys, "serve", "--model", "nothing", "--host", host)
