"""The page as a person meets it: in headless Chromium, without a driver. Skipped where no browser is installed.

A probe script at the end of the page records errors, operates the panel, and leaves what it saw in the document.
"""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from ncprob import NCPClassifier, NCPRegressor
from ncprob.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=15000",
]
# Ends of what a text may stand in (element, script, comment, title, style, quotes), markup that plotly reads by itself,
# a template, and marks that end lines in JavaScript.
NASTY = (
    '<img src=x onerror="window.hacked=1">&\'</script><script>window.hacked=1</script>'
    "</title></style><!--<script>--><svg onload=window.hacked=1>"
    "<a href='javascript:window.hacked=1'>b</a>{{ 7 * 7 }}${window.hacked=1}`\u2028\u2029\\"
)
QUOTED = "\" onmouseover=window.hacked=1 autofocus onfocus=window.hacked=1 x=\"' onclick='window.hacked=1"

RECORDER = """<script>
window.problems = [];
window.addEventListener("error", (event) => problems.push(String(event.message)), true);
document.addEventListener("securitypolicyviolation", (event) => problems.push("blocked " + event.blockedURI));
for (const name of ["error", "warn"]) console[name] = (...words) => problems.push(words.join(" "));
</script>"""

PROBE = """<script>
window.addEventListener("load", () => setTimeout(async () => {
  const pause = () => new Promise((resolve) => setTimeout(resolve, 300));
  const text = (id) => document.getElementById(id).textContent;
  const press = async (label) => {
    [...document.querySelectorAll("#controls button")].find((b) => b.textContent === label).click(); await pause();
  };
  const seen = { width: window.innerWidth, start: text("answers") };
  const slide = async (place) => {
    const input = document.querySelector("#controls input[type=range]");
    input.value = place; input.dispatchEvent(new Event("input")); await pause();
  };
  await slide(0); seen.low = text("answers");
  await slide(1000); seen.high = text("answers");
  const number = document.querySelector("#controls input[type=number]");
  if (number) {
    await press("CDF"); seen.cdf = document.querySelector("#chart .ytitle").textContent;
    const field = document.querySelector("#controls input[type=number]");
    field.value = 0; field.dispatchEvent(new Event("input")); await pause(); seen.threshold = text("answers");
  }
  await press("Test rows"); seen.test = text("answers"); seen.support = text("support");
  await slide(3); seen.next = text("answers");
  seen.drawn = document.querySelectorAll("#chart svg .trace path.js-line, #chart svg .trace .point path").length;
  seen.pictures = [...document.images].map((i) => [i.naturalWidth > 0, i.getBoundingClientRect().width]);
  seen.overflow = document.documentElement.scrollWidth - window.innerWidth;
  seen.chart = document.querySelector("#chart .main-svg").getBoundingClientRect().width;
  seen.problems = [...window.problems];  // plotly does not know events without a place, which follow
  for (const element of document.querySelectorAll("*"))
    for (const kind of ["mouseover", "mouseenter", "focus", "click"])
      if (element.tagName !== "A" || !element.href.startsWith("file:")) element.dispatchEvent(new Event(kind));
  await pause();
  const attributes = [...document.querySelectorAll("*")].flatMap((e) => [...e.attributes]);
  seen.handlers = attributes.filter((a) => a.name.startsWith("on")).map((a) => a.name + "=" + a.value);
  seen.links = [...document.querySelectorAll("[href], [*|href]")]
    .map((e) => e.getAttribute("href") || e.getAttribute("xlink:href") || "")
    .filter((link) => /^\\s*javascript:/i.test(link));
  seen.foreign = document.querySelectorAll("img[src=x], body svg[onload]").length;
  seen.hacked = Boolean(window.hacked);
  parent.postMessage(JSON.stringify(seen), "*");
}, 300));
</script>"""

# A window of a browser has a least width of its own; a frame has not.
FRAME = """<!DOCTYPE html><iframe src="{name}" style="border: 0; width: {width}px; height: 1200px"></iframe>
<script>window.onmessage = (event) => {{
  const out = document.createElement("pre"); out.id = "seen"; out.textContent = event.data;
  document.body.appendChild(out);
}};</script>"""


def look(page, width, folder):
    """What the probe saw on the page in a window of this width."""
    text = page.read_text().replace("<head>", "<head>" + RECORDER, 1).replace("</body>", PROBE + "</body>")
    (folder / "probed.html").write_text(text)
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(name="probed.html", width=width))
    profile = f"--user-data-dir={folder / 'profile'}"
    run = subprocess.run(
        [BROWSER, *FLAGS, profile, "--window-size=1400,1300", "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, flags=re.S)
    assert found, "the probe did not finish"
    return json.loads(html.unescape(found[1]))


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {NASTY: rng.uniform(-1, 1, n), "town": rng.choice(["p", NASTY, QUOTED], n), QUOTED: rng.normal(size=n)}
    )
    return X, X[NASTY] * 3 + (X["town"] == "p") + 0.2 * rng.normal(size=n)


FAST = {"max_steps": 80, "hidden_sizes": (16,), "coordinates": "raw", "random_state": 0, "progress": False}


@pytest.fixture(scope="module", params=["numbers", "classes", "vector"])
def page(request, tmp_path_factory):
    X, y = table()
    if request.param == "classes":
        model, y = NCPClassifier(**FAST), np.where(y > 0.5, NASTY, QUOTED)
    else:
        model = NCPRegressor(**FAST)
        y = y.rename(NASTY) if request.param == "numbers" else pd.DataFrame({NASTY: y, QUOTED: -y})
    path = tmp_path_factory.mktemp(request.param) / "report.html"
    return write_report(model.fit(X[:200], y[:200]), X[200:], y[200:], path, title=NASTY)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_works(page, width, tmp_path):
    seen = look(page, width, tmp_path)
    assert seen["problems"] == []
    assert not seen["hacked"]
    assert seen["handlers"] == []
    assert seen["links"] == []
    assert seen["foreign"] == 0
    assert seen["width"] == width
    assert seen["overflow"] <= 0
    assert seen["drawn"] > 0
    assert 200 < seen["chart"] <= width
    assert all(loaded and 200 < shown <= width for loaded, shown in seen["pictures"])
    assert len(seen["pictures"]) >= 3
    assert seen["low"] != seen["high"]
    assert "observed" in seen["test"]
    assert seen["test"] != seen["next"]
    if "cdf" in seen:
        assert seen["cdf"] == "probability"
        assert "≤ 0)" in seen["threshold"]
        assert "%" in seen["threshold"]
