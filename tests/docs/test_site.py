"""The site as `make docs` builds it, read as files and in a browser."""

import contextlib
import functools
import http.server
import inspect
import re
import shutil
import subprocess
import threading

import pytest

from docs.site import check
from docs.site.__main__ import BUILD, build, main
from docs.site.names import find, public_names

pytestmark = pytest.mark.system

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = ("", "extortioner/", "guides/exact/", "results/attacks/", "api/", "api/learn/", "gallery/", "concepts/errors/")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]


def test_the_site(subtests, monkeypatch):
    """One test, because a build takes ten seconds and all of these read the same one."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/shaping")
    assert main() == 0
    site = BUILD / "site"
    with subtests.test("every public name has one anchor"):
        pages = [check.read(path.read_text()) for path in (site / "api").rglob("*.html")]
        for name, others in public_names().items():
            for path in (name, *others):
                assert sum(path in page.anchors for page in pages) == 1, path
    with subtests.test("the arguments of every public function are a table"):
        text = "".join(path.read_text() for path in (site / "api").rglob("*.html"))
        parts = dict(re.findall(r'<h3 id="([^"]*)" class="doc doc-heading">(.*?)(?=<h3|</article>)', text, re.S))
        objects = {name: find(name) for name in public_names() if name in parts and not name.startswith("games.")}
        functions = [name for name, found in objects.items() if inspect.isfunction(found) and "Args:" in found.__doc__]
        assert len(functions) > 60
        assert [name for name in functions if "Parameters:" not in parts[name]] == []
        assert "Letcher" in parts["marl.sos"]  # from a docstring that is made
    with subtests.test("comments behind the fields of a NamedTuple are a table"):
        text = (site / "api" / "play" / "index.html").read_text()
        fit = text[text.index('id="games.zd.Fit"') :]
        table = re.sub(r"(<[^>]*>|\s)+", " ", fit[: fit.index("Source code")])
        assert "residual ndarray [...] , root mean square over the four states" in table
    with subtests.test("types of the library that signatures name are links to their entries"):
        texts = {path.parent.name: path.read_text() for path in (site / "api").rglob("*.html")}
        assert 'href="../types/#attacks.victim_training.MakeVictim"' in texts["attack"]
        named = {
            name
            for page, text in texts.items()
            for name in re.findall(r'<span title="((?:games|marl|attacks|meta|configs)\.[\w.]+)">', text)
            if page != "types" and re.search(r"\.[A-Z]\w*[a-z]\w*$", name)
        }
        assert named == set()  # a type without a link is no entry of docs/site/types.py
    with subtests.test("every page links to the repository if its address is known"):
        link = '<a href="https://github.com/owner/shaping">repository</a>'
        assert all(link in (site / page / "index.html").read_text() for page in PAGES)
    with subtests.test("nothing is loaded from another host"):
        loaded = {url for path in site.rglob("*.html") for url in check.loads(check.read(path.read_text()))}
        assert len(loaded) > 100
        assert [url for url in loaded if check.is_elsewhere(url)] == []
    with subtests.test("the build says what is wrong with a site, and nothing is"):
        assert check.faults(site) == []
        assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 30_000_000
    for width, scheme in ((1280, "light"), (390, "dark")):
        with subtests.test(f"pages in a browser of {width} pixels, {scheme}"), served(site) as address:
            if BROWSER is None:
                pytest.skip("no Chromium is installed")
            assert_pages_are_sound(address, width, scheme)


def assert_pages_are_sound(address, width, scheme):
    """No errors in the console, no requests to other hosts, no scrolling sideways, and a search that finds."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=QUIET, timeout=300_000)
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.set_default_timeout(120_000)
        faults, requests = [], []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        for name in PAGES:
            page.goto(address + name)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        page.goto(address)
        page.locator(".md-search__button:visible, label[for=__search]:visible").first.click()
        for attempt in range(60):  # results come while one types, in a shadow root that tests cannot read
            page.wait_for_timeout(500)
            page.keyboard.type("extortion" if attempt == 0 else "")
            page.keyboard.press("Enter")
            if "extortion" in page.url:
                break
        assert "extortion" in page.url, "the search does not lead to a page"
        browser.close()
    assert faults == []
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


@contextlib.contextmanager
def served(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_build_that_is_killed_is_a_fault(tmp_path, monkeypatch):
    killed = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    assert build(tmp_path / "mkdocs.yml") == ["zensical ended with status -9"]


def test_a_broken_site_is_refused_line_by_line(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: x\ntheme: {font: false}\nplugins: [search, mkdocstrings]\n")
    page = tmp_path / "docs" / "index.md"
    page.write_text("# X\n\n[a](poker.md) and\n[b](index.md#chess)\n")
    assert sorted(build(tmp_path / "mkdocs.yml")) == [
        "index.md:3:5: page does not exist",
        "index.md:4:14: anchor does not exist",
    ]
    page.write_text("# X\n\n::: games.poker\n")
    assert "mkdocstrings: games.poker could not be found" in build(tmp_path / "mkdocs.yml")
    page.write_text("# X\n\n[a][games.poker]\n")
    assert build(tmp_path / "mkdocs.yml") == ["index.md:3:5: unresolved autoref"]
    page.write_text("# X\n\n![a](poker.png)\n")
    assert build(tmp_path / "mkdocs.yml") == []
    assert check.faults(tmp_path / "site") == ["index.html: poker.png does not exist"]
