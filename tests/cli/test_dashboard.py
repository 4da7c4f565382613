"""The page of each role, and that of a demo: what it shows, what it must not, and how it looks when a role is down."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deployment import PATIENCE, ROLES, Deployment, provision, require
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.progress import Standing
from hiddenarm.research.web_demo import MOST_POINTS, Curve, DemoPage
from hiddenarm.roles.health import RewardSums
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.dashboard import mean_with_band, page_text
from hiddenarm.service.kit import read_kit_file

FEATURE = 0.31830988
REWARD = 0.27182818
KEY = "canary-user-4711"
STEPS = 6


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A federation whose state lasts, with a few decisions about one user; the features and rewards are canaries."""
    folder = tmp_path_factory.mktemp("dashboard")
    kits = provision(folder, durable=True)
    for party in ("hotel", "airline"):
        names = (kits / party / "features.csv").read_text().splitlines()[0]
        count = len(names.split(",")) - 1
        (kits / party / "features.csv").write_text(f"{names}\n{KEY}{f',{FEATURE / 2}' * count}\n")
    with Deployment(kits) as running:
        running.start(*ROLES)
        for _ in range(STEPS):
            decision = running.ask("actor", key=KEY)
            assert "version" in running.ask("rewarder", id=decision["id"], reward=REWARD)
        yield running


def data_of(deployment: Deployment, role: str) -> dict[str, Any]:
    status, body = deployment.get(role, "/dashboard.json")
    assert status == 200
    (found,) = json.loads(body)["roles"]
    return dict(found)


def test_each_role_shows_what_it_may_know(deployment: Deployment) -> None:
    hotel, actor, rewarder, dealer = (data_of(deployment, role) for role in ("hotel", "actor", "rewarder", "dealer"))
    assert hotel["name"] == "hotel (party 0)"
    assert all(role["ready"] for role in (hotel, actor, rewarder, dealer))
    last = hotel["samples"][-1]
    assert last["version"] == STEPS
    assert last["pending"] == 0
    assert sum(interactions for _, interactions, _ in last["runs"].values()) >= STEPS
    assert {peer["name"] for peer in hotel["peers"]} >= {"airline (party 1)", "dealer"}
    assert hotel["privacy"]["decisions"] == STEPS
    (program, *_) = hotel["last_runs"]
    run = hotel["last_runs"][program]
    assert len(run["sent"]) == len(run["bytes"]) >= 3
    assert run["sent"] == sorted(run["sent"])
    assert data_of(deployment, "airline")["samples"][-1]["stock"]
    assert sum(actor["samples"][-1]["arms"]) == STEPS
    assert actor["arm_names"] == ["beach", "city", "mountains", "cruise"]
    assert rewarder["samples"][-1]["reward"] == [STEPS, pytest.approx(REWARD, abs=1e-6), pytest.approx(0.0, abs=1e-3)]
    assert "samples" in dealer


def test_the_bytes_of_a_page_hold_nothing_that_its_role_may_not_know(deployment: Deployment) -> None:
    for role in ROLES:
        pages = [deployment.get(role, path) for path in ("/dashboard", "/dashboard.json", "/metrics", "/readyz")]
        assert {status for status, _ in pages} == {200}, role
        served = "".join(body for _, body in pages)
        assert KEY not in served
        for value in (FEATURE, FEATURE / 2):
            assert str(value)[:7] not in served
        if role != "rewarder":
            assert str(REWARD)[:6] not in served
            assert all("reward" not in sample for sample in data_of(deployment, role)["samples"])
        if role != "actor":
            assert "beach" not in served
            assert all("arms" not in sample for sample in data_of(deployment, role)["samples"])
        if role not in ("hotel", "airline"):
            assert data_of(deployment, role)["privacy"] is None


def test_a_page_that_is_opened_later_shows_the_past(deployment: Deployment) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(samples := data_of(deployment, "actor")["samples"]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    times = [sample["t"] for sample in samples]
    assert times == sorted(times)


def test_a_site_whose_name_points_here_gets_nothing(deployment: Deployment) -> None:
    port = read_kit_file(deployment.kits / "actor").monitor_port
    for host, status in (("evil.example", 403), (f"evil.example:{port}", 403), (f"localhost:{port}", 200)):
        for path in ("/dashboard", "/dashboard.json"):
            connection = HTTPConnection("127.0.0.1", port or 0, timeout=PATIENCE)
            connection.request("GET", path, headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()


def test_the_page_names_no_other_place() -> None:
    addresses = re.findall(r"https?://[^\s\"'`]+", page_text())
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # the name of a language; nothing is fetched
    assert "default-src 'none'" in page_text()


def test_the_band_is_that_of_the_mean() -> None:
    sums = RewardSums()
    assert mean_with_band(sums) == [0, 0.0, 0.0]
    sums.observe([0.0, 1.0] * 50)
    assert mean_with_band(sums) == [100, 0.5, pytest.approx(1.96 * 0.5 / 10)]


def test_a_long_curve_is_thinned() -> None:
    curve = Curve(10_000)
    for step in range(1, 10_001):
        curve.update(Standing(step, step / 10_000, 0.5, 1.0))
    points = curve.to_dict()["curve"]
    assert len(points) <= MOST_POINTS + 1
    assert points[-1][:2] == (10_000, 1.0)
    assert [point[0] for point in points] == sorted(point[0] for point in points)


# In a browser

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require("chromium", "chromedriver")
    assert CHROMIUM is not None
    assert DRIVER is not None
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", "--window-size=1280,900"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def states(browser: Any) -> dict[str, str]:
    script = "return [...document.querySelectorAll('[data-role]')].map(e => [e.dataset.role, e.dataset.state])"
    return dict(browser.execute_script(script))


def text_of(browser: Any) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def ports_of(deployment: Deployment) -> dict[Identity, int]:
    parties = {Identity(Role.PARTY, number): name for number, name in enumerate(("hotel", "airline"))}
    names = {**parties, ACTOR: "actor", REWARDER: "rewarder", DEALER: "dealer"}
    return {role: read_kit_file(deployment.kits / name).monitor_port or 0 for role, name in names.items()}


CONTRAST = """
const parse = text => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith('color(') ? [...numbers.slice(0, 3).map(n => 255 * n), numbers[3] ?? 1]
        : [...numbers.slice(0, 3), numbers[3] ?? 1];
};
const over = (top, below, share) => [0, 1, 2].map(i => top[i] * share + below[i] * (1 - share));
const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = element => {
    if (!element) return [255, 255, 255];
    const style = getComputedStyle(element), own = parse(style.backgroundColor), below = behind(element.parentElement);
    return over(own, below, own[3] * Number(style.opacity));
};
const shown = element => {
    let share = 1;
    for (let e = element; e; e = e.parentElement) share *= Number(getComputedStyle(e).opacity);
    return share;
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, style = getComputedStyle(element);
    const text = texts.currentNode.textContent.trim();
    if (!text || !element.getClientRects().length || style.visibility === 'hidden') continue;
    if (['SCRIPT', 'STYLE', 'TITLE'].includes(element.tagName.toUpperCase())) continue;
    const back = behind(element), own = parse(element.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(over(own, back, own[3] * shown(element))), light(back)];
    const range = document.createRange();
    range.selectNode(texts.currentNode);
    found.push([text, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), range.getClientRects()[0].height]);
}
return found;
"""
"""Every text that is shown, the ratio of its luminance to that of what is behind it, as WCAG 2 defines it, and the
height of its line in pixels."""
LEAST_CONTRAST = 4.5
LEAST_HEIGHT = 9.0
SIZES = {"wide": (1280, 900), "phone": (390, 844)}


def legible(browser: Any) -> list[tuple[str, float, float]] | None:
    """The texts that are shown, unless one is too small to read: pictures are drawn anew for another width."""
    found: list[tuple[str, float, float]] = browser.execute_script(CONTRAST)
    assert len(found) > 10
    return found if min(height for _, _, height in found) >= LEAST_HEIGHT else None


def check_looks(browser: Any, folder: Path, name: str) -> None:
    """Light and dark, wide and on a phone: nothing is cut off, all text can be read. Leaves pictures in a folder."""
    backs = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        for size, (width, height) in SIZES.items():
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            texts = wait_until(lambda: legible(browser))
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (name, scheme, size)
            pale = [(text, round(ratio, 2)) for text, ratio, _ in texts if ratio < LEAST_CONTRAST]
            assert not pale, (name, scheme, size, pale)
            backs.add((scheme, browser.execute_script("return getComputedStyle(document.body).backgroundColor")))
            high = browser.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": high, "scale": 1}
            beyond = {"captureBeyondViewport": True, "clip": clip}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", beyond)
            (folder / f"{name}-{scheme}-{size}.png").write_bytes(base64.b64decode(shot["data"]))
    assert len({back for _, back in backs}) == 2, "light and dark are two"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(("css", "ratio"), [("#000", 21.0), ("#777", 4.48), ("rgb(0 0 0 / 50%)", 3.98)])
def test_contrast_is_measured_as_wcag_defines_it(browser: Any, css: str, ratio: float) -> None:
    browser.get(f"data:text/html,<body style='background:white'><p style='color:{css.replace('#', '%23')}'>text</p>")
    ((text, found, height),) = browser.execute_script(CONTRAST)
    assert (text, found) == ("text", pytest.approx(ratio, abs=0.05))
    assert 10 < height < 30  # of a text of 16 pixels


def test_pages_in_a_browser_all_up_and_with_a_role_down(deployment: Deployment, browser: Any, tmp_path: Path) -> None:
    port = ports_of(deployment)
    for role in (ACTOR, REWARDER, DEALER, Identity(Role.PARTY, 0)):
        browser.get(f"http://127.0.0.1:{port[role]}/dashboard")
        wait_until(lambda: set(states(browser).values()) == {"ready"})
        check_looks(browser, tmp_path, f"{role}-up")
    browser.get(f"http://127.0.0.1:{port[ACTOR]}/dashboard")
    wait_until(lambda: states(browser) == {"actor": "ready"})
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert {urlsplit(name).netloc for name in fetched} <= {f"127.0.0.1:{port[ACTOR]}", ""}
    assert browser.get_log("browser") == []
    with DemoPage(port, Curve(10)) as page:
        browser.get(page.url)
        everybody = {"party 0", "party 1", "actor", "rewarder", "dealer"}
        wait_until(lambda: states(browser) == dict.fromkeys(everybody, "ready"))
        assert "The rounds of the last step" in text_of(browser)
        check_looks(browser, tmp_path, "demo-up")
        deployment.processes["airline"].kill()
        deployment.processes["airline"].wait()
        wait_until(
            lambda: states(browser).get("party 1") == "no answer" and states(browser).get("party 0") == "not ready"
        )
        assert "airline (party 1) not connected" in text_of(browser)
        check_looks(browser, tmp_path, "demo-down")
        browser.get(f"http://127.0.0.1:{port[ACTOR]}/dashboard")
        wait_until(lambda: states(browser) == {"actor": "not ready"})
        check_looks(browser, tmp_path, "actor-down")
        browser.get(page.url)
        deployment.start("airline")
        wait_until(lambda: states(browser) == dict.fromkeys(everybody, "ready"))
    wait_until(lambda: "does not answer" in text_of(browser))  # the page itself has lost its server
    check_looks(browser, tmp_path, "demo-lost")


def test_a_demo_shows_all_roles_side_by_side_until_it_is_interrupted(tmp_path: Path, browser: Any) -> None:
    command = [sys.executable, "-m", "hiddenarm", "demo", "--web", "--steps", "40", "--features", "4", "--arms", "3"]
    command += ["--seed", "1", "--plot", str(tmp_path / "plot.png")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        try:
            found = next(found for line in demo.stdout if (found := re.search(r"http://127.0.0.1:\d+/", line)))
            browser.get(found[0])
            wait_until(lambda: "40 of 40" in text_of(browser) and "done" in text_of(browser))
            wait_until(lambda: set(states(browser).values()) == {"ready"} and len(states(browser)) == 5)
            with urllib.request.urlopen(f"{found[0]}dashboard.json", timeout=PATIENCE) as answer:
                data = json.loads(answer.read())
            assert data["demo"]["agreement"] == 1.0
            assert data["demo"]["curve"][-1][0] == 40
            assert browser.execute_script("return document.querySelectorAll('#sequence line').length") > 20
            assert [line for line in browser.get_log("browser") if found[0] in line["message"]] == []
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE) == 0
        finally:
            demo.kill()
