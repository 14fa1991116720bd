"""Forged requests to the page: only uploaded files are read, and each request gets an error message."""

import json
from pathlib import Path

import pytest

pytest.importorskip("gradio", reason="the extra demo is not installed")

import httpx
from PIL import Image

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.serving.hosts import listen
from hf_ngsan.space import Parts, launch, make_page
from hf_ngsan.space.parts import Search, regions_of
from tests.data.images.photos import encoded
from tests.models.mhsan import tiny as mhsan
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor

META = {"_type": "gradio.FileData"}
PICTURE = "data:image/jpeg"


def served(parts: Parts):
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
    page = make_page(parts)
    url = launch(page, port=port)
    assert not page.share and url == f"http://127.0.0.1:{port}/"  # only on this machine
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client
    page.close(verbose=False)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("gradio")))
        pipeline = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
        yield from served(Parts("tiny", pipeline))


@pytest.fixture(scope="module")
def search() -> Search:
    return Search(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True))


@pytest.fixture(scope="module")
def searching(search):
    pipeline = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
    yield from served(Parts("tiny", pipeline, search=search))


@pytest.fixture(scope="module")
def regions():
    model, processor = tiny_captioner(visual_feature_size=10, geometric_bias=["query"]), tiny_processor()
    rows = regions_of(model, processor, "scenes:size=10,seed=1", "test")
    yield from served(Parts("tiny", CaptioningPipeline(model=model, processor=processor), rows))


@pytest.fixture(autouse=True)
def no_traceback(capfd):
    yield
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


def uploaded(client: httpx.Client, content: bytes, name: str = "photo.png") -> str:
    return client.post("/gradio_api/upload", files={"files": (name, content)}).json()[0]


def upload_of(client: httpx.Client, photo: Image.Image = PHOTOS[0]) -> dict:
    return {"path": uploaded(client, encoded(photo, "PNG")), "meta": META}


def outcome(client: httpx.Client, data: list, **more: object) -> dict:
    """Returns the last message of an event, as a browser receives it."""
    sent = json.dumps({"data": data, "session_hash": "s", **more})
    joined = client.post("/gradio_api/queue/join", content=sent, headers={"content-type": "application/json"})
    assert joined.status_code == 200, joined.text
    lines = client.get("/gradio_api/queue/data", params={"session_hash": "s"}).text.splitlines()
    messages = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    return next(message for message in messages if message["msg"] == "process_completed")


def is_refused(message: dict) -> bool:
    error = message["output"].get("error")
    return not message["success"] and isinstance(error, str) and 0 < len(error) < 400 and PICTURE not in str(message)


@pytest.fixture(scope="module")
def private(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("private") / "private.png"
    PHOTOS[0].save(path)
    return path


FORGED = {
    "no meta": lambda path: {"path": path},
    "other meta": lambda path: {"path": path, "meta": {"_type": "x"}},
    "null meta": lambda path: {"path": path, "meta": None},
    "meta": lambda path: {"path": path, "meta": META},
    "a stream": lambda path: {"path": path, "is_stream": True},
    "a URL of data beside it": lambda path: {"path": path, "url": "data:image/png;base64,AAAA"},
    "a file URL": lambda path: {"path": f"file://{path}", "meta": META},
    "a URL": lambda path: {"path": "http://127.0.0.1:9/x.png", "meta": META},
    "data alone": lambda path: {"url": "data:image/png;base64,AAAA"},
    "nested": lambda path: {"path": {"path": path, "meta": META}},
    "a list": lambda path: [{"path": path}],
    "a path": lambda path: path,
    "an update": lambda path: {"__type__": "update", "value": path},
    "a zero byte": lambda path: {"path": f"{path}\0"},
    "half a character": lambda path: {"path": "\ud800"},
    "a number": lambda path: 7,
    "nothing": lambda path: None,
}


def test_a_file_that_was_not_uploaded_is_not_read(photographs, private):
    for case, forged in FORGED.items():
        assert is_refused(outcome(photographs, [forged(str(private)), 1], fn_index=0)), case


def test_paths_that_lead_away_from_an_upload_are_not_read(photographs, private):
    upload = uploaded(photographs, encoded(PHOTOS[1], "PNG"))
    neighbour = Path(upload).parent / "neighbour.png"  # as another page on the machine would leave it
    PHOTOS[2].save(neighbour)
    for path in (f"{Path(upload).parent}/../../../../..{private}", f"{upload}/../neighbour.png", str(neighbour)):
        for meta in ({}, {"meta": META}):
            assert is_refused(outcome(photographs, [{"path": path, **meta}, 1], fn_index=0)), path
        assert photographs.get(f"/gradio_api/file={path}").status_code == 404
    message = outcome(photographs, [{"path": upload, "meta": META}, 1], fn_index=0)
    assert message["success"] and PICTURE in message["output"]["data"][0]
    assert photographs.get(f"/gradio_api/file={upload}").status_code == 200


def test_uploads_are_read_in_the_formats_of_the_package_whatever_they_are_called(photographs):
    full = encoded(PHOTOS[0], "PNG")
    bad = {
        "a.eps": encoded(PHOTOS[0], "EPS"),
        "b.png": encoded(PHOTOS[0], "EPS"),
        "c.ico": encoded(PHOTOS[0], "ICO"),
        "half.png": full[: len(full) // 2],
        "empty.png": b"",
        "text.png": b"no image",
        "thin.png": encoded(Image.new("RGB", (1000, 9)), "PNG"),
        "large.png": encoded(Image.new("1", (12_000, 12_000)), "PNG"),
        "svg.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    }
    for name, content in bad.items():
        upload = {"path": uploaded(photographs, content, name), "meta": META, "orig_name": name}
        assert is_refused(outcome(photographs, [upload, 1], fn_index=0)), name
    upload = {"path": uploaded(photographs, encoded(PHOTOS[0], "GIF"), "photo.svg"), "meta": META}
    assert outcome(photographs, [upload, 1], fn_index=0)["success"]


def test_beams_are_a_whole_number(photographs):
    upload = upload_of(photographs)
    for beams in (1.5, 0, -1, 9, 1e308, float("nan"), "3", None, [], {}, 10**30):
        assert is_refused(outcome(photographs, [upload, beams], fn_index=0)), beams
    assert is_refused(outcome(photographs, [upload], fn_index=0))


def test_other_endpoints_are_closed_and_nothing_that_gradio_fails_at_is_told_at_length(photographs):
    for path in (
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=http://127.0.0.1:9/x",
        "/gradio_api/proxy=http://127.0.0.1:9/x",
        "/gradio_api/openapi.json",
        "/openapi.json",
        "/docs",
        "/monitoring",
        "/gradio_api/runs",
        "/gradio_api/deep_link?session_hash=s",
        "/gradio_api/dev/reload",
    ):
        assert photographs.get(path).status_code == 404, path
    for path in ("component_server", "vibe-edit", "process_recording", "run/caption", "api/caption", "stream/x"):
        assert photographs.post(f"/gradio_api/{path}", json={"data": [None, 1]}).status_code == 404, path
    for path in ("call/nothing", "call/v2/nothing", "call/v2/caption"):
        assert photographs.post(f"/gradio_api/{path}", json={"data": []}).status_code == 400, path
    for number in (99, -1):
        sent = {"data": [], "fn_index": number, "session_hash": "t"}
        assert photographs.post("/gradio_api/queue/join", json=sent).status_code == 400
    for number in (1, 2, 3):  # done by the browser alone
        assert is_refused(outcome(photographs, [None], fn_index=number))
    assert photographs.get("/").status_code == photographs.get("/config").status_code == 200


EVENTS = [
    None,
    {},
    [],
    "x",
    {"index": 0, "dx": "x", "dy": None},
    {"index": 99, "dx": 0, "dy": 0},
    {"index": 0, "dx": 10**400, "dy": 0},
]


def test_regions_are_moved_within_bounds(regions):
    names = {fn["api_name"]: fn["id"] for fn in regions.get("/config").json()["dependencies"]}
    for number in (None, -1, 2, 0.5, "0", float("inf"), [], {}):
        assert is_refused(outcome(regions, [number, 1], fn_index=names["begin"])), number
    for forged in (None, 7, "x"):  # the state of a session is on the server
        for event in EVENTS:
            assert is_refused(outcome(regions, [forged, 1], fn_index=names["move"], event_data=event)), event
    assert is_refused(outcome(regions, [None, 1], fn_index=names["show_again"]))
    assert outcome(regions, [0, 1], fn_index=names["begin"])["success"]
    change = {"index": 0, "dx": 1e300, "dy": 0.1, "corner": False}
    assert outcome(regions, [None, 1.0], fn_index=names["move"], event_data=change)["success"]
    assert outcome(regions, ["x", 2], fn_index=names["show_again"])["success"]


SEARCH = 5
"""Number of the page's function that searches photographs, after the five of the photograph's tab."""


def test_uploaded_photographs_are_found_by_words(searching, search):
    uploads = [upload_of(searching, photo) for photo in PHOTOS[:3]]
    message = outcome(searching, [uploads, "a red ball", None], fn_index=SEARCH)
    assert message["success"], message
    shown = [float(item["caption"]) for item in message["output"]["data"][0]]
    scores = search.scores("a red ball", [search.embed(photo) for photo in PHOTOS[:3]])
    assert shown == pytest.approx(sorted(scores, reverse=True), abs=1e-3)


def test_photographs_that_were_not_uploaded_are_not_searched(searching, private):
    upload = upload_of(searching)
    for case, forged in FORGED.items():
        file = forged(str(private))
        for uploads in ([file], [upload, file], file):
            assert is_refused(outcome(searching, [uploads, "a red ball", None], fn_index=SEARCH)), case


def test_searches_have_words_and_some_photographs(searching):
    upload = upload_of(searching)
    for query in ("", "  ", None, 7, "a" * 1001, ["a"]):
        assert is_refused(outcome(searching, [[upload], query, None], fn_index=SEARCH)), query
    for uploads in ([], None, [upload] * 101):
        assert is_refused(outcome(searching, [uploads, "a red ball", None], fn_index=SEARCH))


def test_the_page_answers_to_its_own_hosts_and_no_other_origin(photographs):
    port = photographs.base_url.port
    strange = "http://evil.example"
    for method, path in (("GET", "/"), ("GET", "/config"), ("POST", "/gradio_api/queue/join"), ("OPTIONS", "/config")):
        for headers in ({"Host": f"evil.example:{port}"}, {"Host": "evil.example", "Origin": strange}):
            answer = photographs.request(method, path, headers=headers)
            assert answer.status_code == 400 and "access-control-allow-origin" not in answer.headers, (method, headers)
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost"):
        for origin in (strange, "null", "http://localhost:1"):
            asking = {"Host": host, "Origin": origin, "Access-Control-Request-Method": "POST"}
            for method in ("GET", "OPTIONS"):
                answer = photographs.request(method, "/config", headers=asking)
                assert (answer.status_code == 200) == (method == "GET"), (host, origin, method)
                assert "access-control-allow-origin" not in answer.headers, (host, origin, method)


def test_further_hosts_of_the_page(monkeypatch, tmp_path):
    asked = {}
    page = make_page(Parts("tiny", CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())))
    monkeypatch.setattr(page, "launch", lambda **settings: asked.update(settings) or (None, "url", None))
    assert launch(page, "0.0.0.0", allowed_hosts=["photos.example"]) == "url"
    [middleware, _] = asked["_app"].user_middleware
    assert {"photos.example", "localhost"} <= middleware.cls(None, **middleware.kwargs).names
    with pytest.raises(ValueError, match="host"):
        launch(page, allowed_hosts=["http://photos.example"])
