"""Hosts to listen at, and host names that are accepted."""

import asyncio
import socket

import pytest

from hf_ngsan.serving.hosts import OwnHosts, listen


def test_where_nobody_can_listen():
    with listen("127.0.0.1", 0) as taken:
        for host, port in (("192.0.2.1", 0), ("127.0.0.1", taken.getsockname()[1]), ("nowhere.invalid", 0)):
            with pytest.raises(OSError, match=host) as raised:
                listen(host, port)
            assert len(str(raised.value).splitlines()) == 1


OWN = ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1:1", "[::1]", "[0:0:0:0:0:0:0:1]:8000"]
STRANGE = ["", " ", "evil.example", "localhost.evil.example", "evil.example:80", "localhost:x", "127.1", "localhost/"]
STRANGE += ["localhost@evil.example", "localhost, evil.example", "[::1", "[::1]evil", "0x7f.0.0.1"]


def answer_to(hosts: list[str], kind: str = "http", **settings) -> list[dict]:
    """Returns the messages for a request with the given `Host` headers; an empty list if the request is accepted."""
    sent = []

    async def passed(scope, receive, send):
        sent.append({})

    async def send(message):
        sent.append(message)

    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    asyncio.run(OwnHosts(passed, **settings)({"type": kind, "headers": headers}, None, send))
    return sent


def test_a_server_answers_to_its_own_hosts_alone():
    local, lan, everywhere = {"host": "127.0.0.1"}, {"host": "192.168.1.5"}, {"host": "0.0.0.0"}
    named = {"host": "Captions.example", "allowed": ["Proxy.example.:80", "fe80::1"]}
    machine = f"{socket.gethostname()}:8000"
    rows = [(local, host, True) for host in OWN] + [(local, host, False) for host in STRANGE]
    rows += [(local, "192.168.1.5", False), (lan, "192.168.1.5:80", True), (lan, "localhost", True)]
    rows += [(named, host, True) for host in ("captions.EXAMPLE:80", "proxy.example", "[FE80::1]:80", "localhost")]
    rows += [(named, "x.captions.example", False), (everywhere, "192.168.1.7:80", True), (everywhere, machine, True)]
    rows += [({"host": "::"}, "[2001:db8::1]:80", True), (everywhere, "0.0.0.0:8000", True)]
    rows += [(everywhere, host, False) for host in STRANGE]
    for settings, host, is_own in rows:
        sent = answer_to([host], **settings)
        assert (sent == [{}]) == is_own, (settings, host)
        assert is_own or sent[0]["status"] == 400, (settings, host)
    for hosts in ([], ["localhost", "evil.example"], ["localhost", "localhost"]):
        assert answer_to(hosts, **local)[0]["status"] == 400, hosts
    assert answer_to(["evil.example"], "websocket", **local)[0]["status"] == 400
    assert answer_to(["localhost"], "websocket", **local) == [{}]
    assert answer_to([], "lifespan", **local) == [{}]
    for name in ("http://captions.example", ""):
        with pytest.raises(ValueError, match="host"):
            OwnHosts(None, "127.0.0.1", [name])
