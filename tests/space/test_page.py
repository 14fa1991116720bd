"""The page: tabs for what there is, mistakes in words, and a journey in a browser."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("gradio", reason="the extra demo is not installed")

import gradio

from hf_ngsan.cli import main
from hf_ngsan.loading.models import save_model
from hf_ngsan.space import load_parts, make_page
from tests.commands.running import fails, prints
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.tables import each_row

SCENES = "scenes:size=10,seed=1"
FEATURE_SIZE = 10


@pytest.fixture(scope="module")
def folders(captioner, dual_encoder, photographs, tmp_path_factory):
    """Returns a captioner of photographs, one of regions, a dual encoder and photographs."""
    root = tmp_path_factory.mktemp("models")
    for name, folder in (("pixels", captioner), ("dual", dual_encoder), ("photos", photographs[0].parent)):
        shutil.copytree(folder, root / name)
    regions = tiny_captioner(visual_feature_size=FEATURE_SIZE, geometric_bias=["query"])
    save_model(regions, tiny_processor(), root / "regions")
    return root


@pytest.fixture(scope="module")
def index(folders):
    target = folders / "photos.index"
    arguments = ["--model", folders / "dual", "--images", folders / "photos", "--output", target, "--num-workers", 0]
    assert main(["index", *map(str, arguments)]) == 0
    return target


def tabs_of(page) -> list[str]:
    return [block.id for block in page.blocks.values() if isinstance(block, gradio.Tab)]


def test_there_is_a_tab_for_each_part(folders, index):
    assert tabs_of(make_page(load_parts(str(folders / "pixels")))) == ["photograph", "search"]
    assert tabs_of(make_page(load_parts(str(folders / "regions"), SCENES))) == ["regions"]
    assert tabs_of(make_page(load_parts(str(folders / "pixels"), index=str(index)))) == ["photograph", "search"]


def test_a_page_searches_an_index_that_grows(folders, tmp_path):
    shutil.copytree(folders / "photos", tmp_path / "photos")
    command = ["index", "--model", folders / "dual", "--images", tmp_path / "photos", "--output", tmp_path / "index"]
    command = [*map(str, command), "--images-per-shard", "1", "--num-workers", "0"]
    assert main(command) == 0
    page = load_parts(str(folders / "pixels"), index=str(tmp_path / "index")).search
    assert len(page.find("a red ball")) == len(PHOTOS)
    PHOTOS[0].save(tmp_path / "photos" / "a_new.png")
    assert main(command) == 0
    found = page.find("a red ball")
    assert len(found) == len(PHOTOS) + 1 and "a_new.png" in [hit.name for hit, _ in found]
    assert all(thumbnail is not None for _, thumbnail in found)


@each_row(
    ("arguments", "fact"),
    [
        (["--model", "regions"], "--data"),
        (["--model", "pixels", "--data", SCENES], "visual_feature_size"),
        (["--model", "regions", "--data", "nothing"], "nothing"),
        (["--model", "pixels", "--index", "photos"], "photos"),
    ],
)
def test_mistakes_are_one_sentence(folders, capsys, monkeypatch, arguments, fact):
    monkeypatch.chdir(folders)
    assert fact in fails(capsys, "app", *arguments)


def test_every_option_reaches_the_page(monkeypatch, capsys):
    asked = []

    def launched(*arguments, **more):
        asked.append((*arguments, more))
        raise ValueError("ended")

    page = SimpleNamespace(close=lambda verbose: asked.append("closed"))
    parts = SimpleNamespace(pipeline=SimpleNamespace(model="model", processor="processor"))
    monkeypatch.setattr("hf_ngsan.space.parts.load_parts", lambda *arguments: asked.append(arguments) or parts)
    monkeypatch.setattr("hf_ngsan.loading.engines.use_engine", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr("hf_ngsan.space.page.make_page", lambda parts: page)
    monkeypatch.setattr("hf_ngsan.space.page.launch", launched)
    words = "--model m --data d --split s --index i --host localhost --port 8080 --engine onnx"
    words += " --allowed-host A.example"
    assert "ended" in fails(capsys, "app", *words.split())
    engine = ("model", "processor", "onnx")
    assert asked == [
        ("m", "d", "s", "i"),
        engine,
        (page, "localhost", 8080, {"allowed_hosts": ["a.example"]}),
        "closed",
    ]


def test_a_missing_gradio_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "hf_ngsan.space.page", raising=False)
    assert "hf-ngsan[demo]" in fails(capsys, "app")


def test_the_space_is_what_its_readme_says():
    folder = Path(__file__).parents[2] / "examples" / "space"
    facts = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert facts["sdk"] == "gradio" and (folder / facts["app_file"]).is_file()
    pinned = (folder.parents[1] / "constraints.txt").read_text()
    assert f"gradio=={facts['sdk_version']}\n" in pinned


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,1300",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def serve(folders):
    """Starts `hf-ngsan app` and returns the URL that it prints; ends it by Ctrl-C."""
    processes = []

    def start(*arguments: object) -> str:
        command = [sys.executable, "-m", "hf_ngsan.cli", "app", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return re.search(r"http://\S+", process.stdout.readline())[0]

    yield start
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def wait_for(browser, condition, seconds=120):
    """Waits for what a page shows, whose elements may not be there yet, or be replaced meanwhile."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, ignored_exceptions=[StaleElementReferenceException, IndexError]).until(
        condition
    )


def found(browser, selector: str) -> list:
    return browser.find_elements("css selector", selector)


def text_of(browser, selector: str) -> str:
    return found(browser, selector)[0].get_attribute("textContent")


def hosts_asked(browser) -> set[str]:
    """Returns where the page has loaded anything from."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    ]
    return {url.split("/")[2].split(":")[0] for url in urls if url.startswith(("http", "ws"))}


@pytest.mark.slow
def test_a_photograph_is_captioned_as_it_is_uploaded_and_searched_for(browser, serve, folders, index, capsys):
    photo = folders / "photos" / "photo0.png"
    url = serve("--model", folders / "pixels", "--index", index)
    browser.get(url)
    wait_for(browser, lambda _: found(browser, "#caption"))

    shown = [".examples img", "#sample .caption.best"]  # pictures to click on, and an example where captions will be
    assert all(found(browser, selector)[0].is_displayed() for selector in shown)
    assert not found(browser, "#captions .caption") and not found(browser, "#hits img")

    found(browser, "#photo input[type=file]")[0].send_keys(str(photo))
    wait_for(browser, lambda _: found(browser, "#captions .caption.best"))
    said = prints(capsys, "caption", "--model", folders / "pixels", photo, "--num-beams", 3)
    assert text_of(browser, "#captions .caption.best").split() == said.strip().split("\t")[1].split()
    assert len(found(browser, "#captions .caption")) == 3
    hidden = ["#photo", "#sample"]  # the photograph is shown once
    assert not any(found(browser, selector)[0].is_displayed() for selector in hidden)
    found(browser, "#another")[0].click()
    wait_for(browser, lambda _: all(found(browser, selector)[0].is_displayed() for selector in hidden))
    assert not found(browser, "#captions .caption") and not found(browser, "#photo img")

    example = found(browser, ".examples button")[0]
    example.click()
    wait_for(browser, lambda _: found(browser, "#captions .caption.best"))
    photograph = found(browser, "#captions img.stage")[0].get_attribute("src")
    found(browser, ".examples button")[-1].click()
    wait_for(
        browser,
        lambda _: [one.get_attribute("src") for one in found(browser, "#captions img.stage")] not in ([], [photograph]),
    )

    words = found(browser, "#captions .caption.best .word")
    overlays = found(browser, "#captions .caption.best .overlay")
    assert not any(overlay.is_displayed() for overlay in overlays)
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(words[1]).perform()
    wait_for(
        browser,
        lambda _: [overlay.is_displayed() for overlay in overlays] == [place == 1 for place in range(len(words))],
    )

    [tab] = [tab for tab in found(browser, "button[role=tab]") if tab.text == "Search"]
    tab.click()
    field = wait_for(browser, lambda _: found(browser, "#query textarea, #query input"))[0]
    field.send_keys("a red ball")
    found(browser, "#search")[0].click()
    wait_for(browser, lambda _: len(found(browser, "#hits img")) == len(PHOTOS))
    assert hosts_asked(browser) == {"127.0.0.1"}


@pytest.mark.slow
def test_a_region_is_dragged_and_its_weights_change(browser, serve, folders):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(serve("--model", folders / "regions", "--data", SCENES))
    region = wait_for(browser, lambda _: found(browser, ".drawing .region"))[-1]  # the one on top
    box = region.find_element("css selector", ".box")
    name, before = (
        region.find_element("css selector", "title").get_attribute("textContent"),
        text_of(browser, ".weights"),
    )
    ActionChains(browser).move_to_element(box).click_and_hold().move_by_offset(60, 40).release().perform()
    wait_for(browser, lambda _: text_of(browser, ".weights") != before)
    dragged = text_of(browser, ".weights")
    assert f"the {name} attends to" in dragged

    found(browser, ".drawing .chosen")[0].send_keys(Keys.ARROW_LEFT)
    wait_for(browser, lambda _: text_of(browser, ".weights") != dragged)
    assert hosts_asked(browser) == {"127.0.0.1"}
