"""The server: captions of files and base64, batches, and answers to all invalid requests."""

import asyncio
import base64
import contextlib
import threading
import time

import pytest
from PIL import Image
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient
from transformers import LogitsProcessor, LogitsProcessorList

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.serving import Batcher, ServingLimits, create_app
from hf_ngsan.serving.requests import RequestError, RequestReader
from tests.data.images.photos import encoded
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


FILES = [encoded(photo) for photo in PHOTOS]
ENCODED = in_base64(FILES[0])


@pytest.fixture(scope="module")
def pipeline() -> CaptioningPipeline:
    return CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())


@pytest.fixture(scope="module")
def captions(pipeline) -> list[str]:
    return [answer["generated_text"] for [answer] in pipeline(PHOTOS, batch_size=1)]


@pytest.fixture(scope="module")
def client(pipeline):
    limits = ServingLimits(request_bytes=200_000, images=8, pixels=1_000_000, seconds=60, wait_ms=1)
    with TestClient(create_app(pipeline, limits, name="tiny")) as client:
        yield client


@contextlib.asynccontextmanager
async def batching(work, **limits):
    """Yields a batcher that runs."""
    batcher = Batcher(work, ServingLimits(**limits))
    answering = asyncio.create_task(batcher.run())
    yield batcher
    answering.cancel()


class Scripted(CaptioningPipeline):
    def __call__(self, images, **options):
        return [[{"generated_text": self.script(images)}] for _ in images]


def scripted(script) -> Scripted:
    """A captioner whose answers are set by a test."""
    pipeline = Scripted(pixel_captioner(), processor=pixel_processor())
    pipeline.script = script
    return pipeline


def test_files_and_base64_are_captioned(client, captions):
    files = [("files", (f"{place}.png", content)) for place, content in enumerate(FILES)]
    answer = client.post("/caption", files=files)
    assert answer.status_code == 200 and answer.json() == {"captions": captions}
    for encode in (
        in_base64,
        lambda content: f"data:image/png;base64,{in_base64(content)}",
        lambda content: base64.encodebytes(content).decode(),  # with line breaks
        lambda content: base64.urlsafe_b64encode(content).decode().rstrip("="),
    ):
        answer = client.post("/caption", json={"images": list(map(encode, FILES))})
        assert answer.status_code == 200 and answer.json() == {"captions": captions}


def test_scores_are_answered_and_a_large_photo_is_decoded_at_the_scale_of_the_pipeline(client, pipeline, tmp_path):
    file = tmp_path / "large.jpg"
    PHOTOS[1].resize((480, 720)).save(file, "JPEG")
    expected = pipeline(str(file), return_scores=True)[0]
    by_form = client.post("/caption", files={"files": file.read_bytes()}, data={"scores": "true"}).json()
    by_json = client.post("/caption", json={"images": [in_base64(file.read_bytes())], "scores": True}).json()
    assert by_json == by_form and by_form["captions"] == [expected["generated_text"]]
    [scores] = by_form["scores"]
    assert scores["score"] == expected["score"]
    assert [word for word, _ in scores["words"]] == expected["generated_text"].split()


def test_options_are_those_of_the_pipeline(client, pipeline):
    expected = pipeline(PHOTOS[0], num_beams=3, max_new_tokens=3, text="the red")[0]["generated_text"]
    options = {"num_beams": 3, "max_new_tokens": 3, "text": "the red"}
    for request in ({"json": {"images": [ENCODED], **options}}, {"files": {"files": FILES[0]}, "data": options}):
        assert client.post("/caption", **request).json() == {"captions": [expected]}
    options = {"text": "the " * 500, "max_new_tokens": 11}  # up to the last position
    assert client.post("/caption", json={"images": [ENCODED], **options}).status_code == 200


BAD = {
    "another type": ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415),
    "no image": ({"files": {"files": b"not an image"}}, 400),
    "too large": ({"files": {"files": b"0" * 300_000}}, 413),
    "unknown length": ({"content": [b"0" * 10_000] * 99, "headers": {"content-type": "application/json"}}, 413),
    "too many files": ({"files": [("files", FILES[0])] * 9}, 413),
    "a broken form": ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
    "many values": ({"content": b"[" * 150_000, "headers": {"content-type": "application/json"}}, 413),
    "too many pixels": ({"files": [("files", encoded(Image.new("1", (2000, 400))))] * 2}, 413),
    "form of words": ({"files": {"files": FILES[0]}, "data": {"num_beams": "three"}}, 400),
}
BAD_JSON = {
    **{"no images": ({"images": []}, 400), "no list": ({"images": 7}, 400), "a string": ({"images": ENCODED}, 400)},
    **{"a mapping": ({"images": {ENCODED: ENCODED}}, 400), "too many images": ({"images": [ENCODED] * 9}, 413)},
    **{"no base64": ({"images": ["*"]}, 400), "no text": ({"images": [7]}, 400)},
    "a URL": ({"images": ["http://127.0.0.1/photo.png"]}, 400),
    **{"a file": ({"images": ["file:///etc/passwd"]}, 400), "unknown option": ({"beams": 3}, 400)},
    **{"too many beams": ({"num_beams": 500}, 400), "no number": ({"num_beams": True}, 400)},
    "unknown words": ({"text": "zebra"}, 400),
    "more words than are continued": ({"text": "the " * 512}, 400),
    "no words left to write": ({"text": "the " * 500, "max_new_tokens": 12}, 400),
    "more tokens than positions": ({"max_new_tokens": 512}, 400),
    "too costly": ({"images": [ENCODED] * 8, "num_beams": 16, "max_new_tokens": 65}, 413),
}
BAD |= {case: ({"json": {"images": [ENCODED], **body}}, status) for case, (body, status) in BAD_JSON.items()}


@each_row("case", BAD)
def test_a_bad_request_gets_one_sentence(client, case):
    request, status = BAD[case]
    answer = client.post("/caption", **request)
    assert answer.status_code == status
    message = answer.json()["error"]
    assert len(message.splitlines()) == 1 and message.endswith((".", "…")) and len(message) < 600


def test_health_and_metrics(client, captions):
    def count(name: str) -> float:
        lines = [line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines()]
        return float(dict(lines).get(f"hf_ngsan_{name}", 0))

    assert client.get("/health").json() == {"status": "ok", "model": "tiny", "waiting": 0}
    names = ("images_total", 'requests_total{status="200"}', 'requests_total{status="415"}')
    before = [count(name) for name in names]
    client.post("/caption", files=[("files", FILES[0]), ("files", FILES[1])])
    client.post("/caption", content=b"x")
    assert [count(name) - start for name, start in zip(names, before, strict=True)] == [2, 1, 1]
    assert client.get("/caption").status_code == 405
    for path in ("/other", "/openapi.json", "/docs", "/redoc"):
        assert client.get(path).status_code == 404, path


def test_pixels_are_counted_before_any_is_decoded(client, monkeypatch):
    loaded, large = [], encoded(Image.new("1", (9400, 9400)))
    monkeypatch.setattr(Image.Image, "load", lambda image: loaded.append(image.size))
    answer = client.post("/caption", files=[("files", FILES[0]), ("files", large)])
    assert answer.status_code == 413 and not loaded


def test_images_of_all_requests_together_are_decoded_within_the_bound(pipeline):
    """An image with more pixels than are free waits, and so do later images, until threads have finished."""

    async def scenario():
        reader, order = RequestReader(pipeline, ServingLimits(pixels=10)), []
        started, free = threading.Event(), threading.Event()

        def work(number):
            order.append(number)
            if number == 6:
                started.set()
                free.wait(30)

        tasks = [asyncio.create_task(reader.in_thread(work, number, pixels=number)) for number in (6, 7, 3)]
        await asyncio.to_thread(started.wait, 30)
        tasks[0].cancel()
        await reader.in_thread(lambda: None)  # an image that needs no pixels does not wait
        assert order == [6] and reader.free_pixels == 4  # threads still decode them
        free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await reader.in_thread(work, 10, pixels=10)
        assert set(order) == {6, 7, 3, 10} and order[-1] == 10
        reader.threads.shutdown()

    asyncio.run(scenario())


def test_large_bodies_share_memory_and_small_ones_need_none(pipeline, monkeypatch):
    monkeypatch.setattr("hf_ngsan.serving.requests.LARGE_BODIES", 0)
    with TestClient(create_app(pipeline, ServingLimits(wait_ms=1))) as client:
        assert client.post("/caption", files={"files": FILES[0]}).status_code == 200
        for _ in range(2):
            answer = client.post("/caption", files={"files": b"0" * 2_000_000})
            assert answer.status_code == 503 and answer.json()["error"].endswith(".")


def test_requests_that_come_together_are_one_batch():
    """The first batch occupies the model until all other images wait, so that these form a batch."""
    sizes, free = [], threading.Event()

    def work(images, options):
        sizes.append(len(images))
        free.wait(30)
        return [f"{image} {options}" for image in images]

    async def scenario():
        async with batching(work, batch_size=4, wait_ms=1000, waiting=20) as batcher:
            requests = [asyncio.create_task(batcher.submit([place, place + 100], "a")) for place in range(4)]
            other = asyncio.create_task(batcher.submit([9], "b"))
            gone = asyncio.create_task(batcher.submit([7], "a"))
            while batcher.waiting < 10:
                await asyncio.sleep(0)
            with pytest.raises(RequestError):
                await batcher.submit(range(11), "a")
            gone.cancel()
            free.set()
            answers = await asyncio.gather(*requests, other)
        assert not batcher.waiting
        return answers

    answers = asyncio.run(scenario())
    assert answers == [[f"{place} a", f"{place + 100} a"] for place in range(4)] + [["9 b"]]
    assert sizes == [4, 4, 1]


def test_an_error_of_the_model_is_that_of_its_batch_alone():
    def work(images, options):
        if options == "bad":
            raise ValueError("bad")
        return [ValueError("one") if image == 1 else image for image in images]

    async def scenario():
        async with batching(work, wait_ms=0) as batcher:
            tasks = [batcher.submit([0], "bad"), batcher.submit([0, 2], "good"), batcher.submit([1], "good")]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert await batcher.submit([3], "good") == [3]
            return answers

    first, second, third = asyncio.run(scenario())
    assert str(first) == "bad" and second == [0, 2] and str(third) == "one"


def test_what_takes_too_long_and_what_waits_too_much():
    slow = scripted(lambda images: time.sleep(0.1))
    for limits, status in ((ServingLimits(seconds=0.01), 504), (ServingLimits(waiting=0), 503)):
        with TestClient(create_app(slow, limits)) as client:
            answer = client.post("/caption", files={"files": FILES[0]})
            assert answer.status_code == status and answer.json()["error"].endswith(".")
            assert client.get("/health").json()["waiting"] == 0


@each_row("failure", [RuntimeError("odd\nlines"), MemoryError("DefaultCPUAllocator"), KeyError("x")])
def test_a_model_that_fails_costs_its_own_batch(failure):
    failures = [failure]

    def script(images):
        if failures:
            raise failures.pop()
        return "well"

    with TestClient(create_app(scripted(script), ServingLimits()), raise_server_exceptions=False) as client:
        answer = client.post("/caption", files={"files": FILES[0]})
        assert answer.status_code == 500
        output = answer.json()["error"]
        assert output.endswith(".") and "\n" not in output
        assert ("--batch-size" in output) == isinstance(failure, MemoryError)
        again = client.post("/caption", files={"files": FILES[0]})
        assert (again.status_code, again.json()) == (200, {"captions": ["well"]})


def test_a_server_that_captions_no_longer_says_so():
    """A panic of Rust, as in tokenizers, is not an Exception."""

    def panic(images):
        raise type("PanicException", (BaseException,), {})

    with TestClient(create_app(scripted(panic), ServingLimits()), raise_server_exceptions=False) as client:
        assert client.post("/caption", files={"files": FILES[0]}).status_code == 500
        assert client.get("/health").status_code == 500
        assert client.post("/caption", files={"files": FILES[0]}).status_code == 500


def test_captions_that_nobody_waits_for_are_given_up_at_the_next_step(monkeypatch):
    begun, abandoned, steps, raised = threading.Event(), threading.Event(), [], []

    class Count(LogitsProcessor):
        def __call__(self, input_ids, scores):
            steps.append(len(input_ids))
            begun.set()
            assert abandoned.wait(30)
            return scores

    class Counted(CaptioningPipeline):
        def __call__(self, images, **options):
            try:
                counted = LogitsProcessorList([Count()])
                return super().__call__(images, logits_processor=counted, min_new_tokens=9, **options)
            except Exception as error:
                raised.append(type(error).__name__)
                raise

    async def gone_at_the_first_step(request, work):
        task = asyncio.create_task(work)
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        raise ClientDisconnect

    monkeypatch.setattr("hf_ngsan.serving.server.unless_gone", gone_at_the_first_step)
    pipeline = Counted(pixel_captioner(), processor=pixel_processor())
    for beams in (1, 3):
        begun.clear(), abandoned.clear(), steps.clear()
        with TestClient(create_app(pipeline, ServingLimits(wait_ms=0))) as client:
            answer = client.post("/caption", files={"files": FILES[0]}, data={"num_beams": beams})
            assert answer.status_code == 499
            abandoned.set()
        assert len(steps) == 1
    assert raised == ["RuntimeError"] * 2


def test_a_batch_costs_no_more_than_a_request():
    sizes = []

    def work(images, options):
        sizes.append(len(images))
        return images

    async def scenario():
        async with batching(work, batch_size=8, wait_ms=1000, cost=100) as batcher:
            tasks = [asyncio.create_task(batcher.submit([0], "a", 50)) for _ in range(4)]
            await asyncio.wait_for(asyncio.gather(*tasks), 30)

    asyncio.run(scenario())
    assert sizes == [2, 2]
