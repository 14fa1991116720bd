"""The page: its tabs, error messages, and a journey in a browser."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

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


def make_index(folders: Path, photos: Path, target: Path) -> None:
    places = ["--model", folders / "dual", "--images", photos, "--output", target]
    assert main(["index", *map(str, places), "--images-per-shard", "1", "--num-workers", "0"]) == 0


@pytest.fixture(scope="module")
def index(folders):
    make_index(folders, folders / "photos", folders / "photos.index")
    return folders / "photos.index"


def test_there_is_a_tab_for_each_part(folders, index):
    for arguments, tabs in (
        (("pixels",), ["photograph", "search"]),
        (("regions", SCENES), ["regions"]),
        (("pixels", None, "test", str(index)), ["photograph", "search"]),
    ):
        page = make_page(load_parts(str(folders / arguments[0]), *arguments[1:]))
        assert [block.id for block in page.blocks.values() if isinstance(block, gradio.Tab)] == tabs, arguments


def test_a_page_searches_an_index_that_grows(folders, tmp_path):
    shutil.copytree(folders / "photos", tmp_path / "photos")
    make_index(folders, tmp_path / "photos", tmp_path / "index")
    parts = load_parts(str(folders / "pixels"), index=str(tmp_path / "index"))
    search = parts.search
    assert len(search.find("a red ball")) == len(PHOTOS)
    PHOTOS[0].save(tmp_path / "photos" / "a_new.png")
    make_index(folders, tmp_path / "photos", tmp_path / "index")
    hits = search.find("a red ball")
    assert len(hits) == len(PHOTOS) + 1 and "a_new.png" in [hit.name for hit, _ in hits]
    assert all(thumbnail is not None for _, thumbnail in hits)
    [find] = [event.fn for event in make_page(parts).fns.values() if event.name == "find"]
    images, table, _ = find("a red ball")
    assert [name for _, name in table] == [hit.name for hit, _ in hits] and len(images) == len(hits)


@each_row(
    ("arguments", "fact"),
    [
        (["--model", "regions"], "--data"),
        (["--model", "pixels", "--data", SCENES], "visual_feature_size"),
        (["--model", "regions", "--data", "nothing"], "nothing"),
        (["--model", "pixels", "--index", "photos"], "photos"),
        (["--model", "pixels", "--data", "images:photos", "--split", "train"], "no regions"),
    ],
)
def test_mistakes_are_one_sentence(folders, capsys, monkeypatch, arguments, fact):
    monkeypatch.chdir(folders)
    assert fact in fails(capsys, "app", *arguments)


def test_the_space_is_what_its_readme_says():
    folder = Path(__file__).parents[2] / "examples" / "space"
    facts = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert facts["sdk"] == "gradio" and (folder / facts["app_file"]).is_file()
    pinned = (folder.parents[1] / "constraints.txt").read_text()
    assert f"gradio=={facts['sdk_version']}\n" in pinned


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1200,1300"


class Browser:
    """A page in Chromium, whose elements are selected by CSS."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def find(self, selector: str) -> list:
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return self.find(selector)[0].get_attribute("textContent")

    def shows(self, selector: str) -> bool:
        return self.find(selector)[0].is_displayed()

    def wait(self, condition):
        """Waits for text of the page, whose elements may not exist yet, or may be replaced meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        ignored = [StaleElementReferenceException, IndexError]
        return WebDriverWait(self.driver, 120, ignored_exceptions=ignored).until(lambda _: condition())

    def hosts(self) -> set[str]:
        """Returns the hosts from which the page has loaded anything."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        urls = [params["request"]["url"] for params in sent]
        return {url.split("/")[2].split(":")[0] for url in urls if url.startswith(("http", "ws"))}


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def serve(folders):
    """Starts `hf-ngsan app`, yields the URL that it prints, and ends it with Ctrl-C."""
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


@pytest.mark.slow
def test_a_photograph_is_captioned_as_it_is_uploaded_and_searched_for(browser, serve, folders, index, capsys):
    from selenium.webdriver import ActionChains

    find, shows, wait = browser.find, browser.shows, browser.wait
    best, photo = "#captions .caption.best", folders / "photos" / "photo0.png"
    browser.driver.get(serve("--model", folders / "pixels", "--index", index))
    wait(lambda: find("#caption"))
    assert shows(".examples img") and shows("#sample .caption.best")  # where captions will appear
    assert not find("#captions .caption") and not find("#hits img")

    find("#photo input[type=file]")[0].send_keys(str(photo))
    wait(lambda: find(best))
    output = prints(capsys, "caption", "--model", folders / "pixels", photo, "--num-beams", 3)
    assert browser.text(best).split() == output.strip().split("\t")[1].split()
    assert len(find("#captions .caption")) == 3
    assert not shows("#photo") and not shows("#sample")  # the photograph is shown once
    find("#another")[0].click()
    wait(lambda: shows("#photo") and shows("#sample"))
    assert not find("#captions .caption") and not find("#photo img")

    find(".examples button")[0].click()
    wait(lambda: find(best))
    photograph = find("#captions img.stage")[0].get_attribute("src")
    find(".examples button")[-1].click()
    wait(lambda: find("#captions img.stage")[0].get_attribute("src") != photograph)

    words, overlays = find(f"{best} .word"), find(f"{best} .overlay")
    assert not any(overlay.is_displayed() for overlay in overlays)
    ActionChains(browser.driver).move_to_element(words[1]).perform()
    second = [place == 1 for place in range(len(words))]
    wait(lambda: [overlay.is_displayed() for overlay in overlays] == second)

    [tab] = [tab for tab in find("button[role=tab]") if tab.text == "Search"]
    tab.click()
    wait(lambda: find("#query textarea, #query input"))[0].send_keys("a red ball")
    find("#search")[0].click()
    wait(lambda: len(find("#hits img")) == len(PHOTOS))
    assert browser.hosts() == {"127.0.0.1"}


@pytest.mark.slow
def test_a_region_is_dragged_and_its_weights_change(browser, serve, folders):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.driver.get(serve("--model", folders / "regions", "--data", SCENES))
    region = browser.wait(lambda: browser.find(".drawing .region"))[-1]  # the topmost region
    box = region.find_element("css selector", ".box")
    name = region.find_element("css selector", "title").get_attribute("textContent")
    before = browser.text(".weights")
    ActionChains(browser.driver).move_to_element(box).click_and_hold().move_by_offset(60, 40).release().perform()
    browser.wait(lambda: browser.text(".weights") != before)
    dragged = browser.text(".weights")
    assert f"the {name} attends to" in dragged

    browser.find(".drawing .chosen")[0].send_keys(Keys.ARROW_LEFT)
    browser.wait(lambda: browser.text(".weights") != dragged)
    assert browser.hosts() == {"127.0.0.1"}
