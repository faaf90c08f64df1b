"""The page of the committed records in Chromium: no error, no request, and everything on it works on a phone."""

import json
import re
from itertools import compress, pairwise

import pytest

from experiments.binaries import GALLERY, discover
from experiments.page import LARGEST, write_page
from experiments.papers import ORDER

WIDTHS = (360, 1280)

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def path(browser, tmp_path_factory):
    """The page of the committed gallery; not made where there is no browser."""
    out = tmp_path_factory.mktemp("page") / "page.html"
    left_out = write_page(GALLERY, GALLERY / "claims.json", out, discover())
    assert out.stat().st_size <= LARGEST
    assert not any(name.endswith((".png", ".json")) for name in left_out)
    out.with_suffix(".json").write_text(json.dumps(left_out))
    return out


@pytest.fixture(scope="module")
def rows(path):
    """One row of each claim of the committed ledger whose record is there, and has the settings of the present code."""
    left_out = json.loads(path.with_suffix(".json").read_text())
    found = json.loads((GALLERY / "claims.json").read_text())
    folders = [GALLERY.joinpath(*row["id"].split(".")[:2], row["preset"]) for row in found]
    there = [folder.exists() and str(folder) not in left_out for folder in folders]
    assert sum(there) > 300
    best = {}
    for row in compress(found, there):
        if row["id"] not in best or best[row["id"]]["verdict"] == "not judged":
            best[row["id"]] = row
    return list(best.values())


@pytest.fixture(scope="module", params=WIDTHS)
def opened(request, browser, path):
    """The page at one width, with what it says on the console and what it asks for."""
    context = browser.new_context(viewport={"width": request.param, "height": 800}, reduced_motion="reduce")
    found, said, asked = context.new_page(), [], []
    found.set_default_timeout(300_000)
    found.on("console", lambda message: said.append(message.text))
    found.on("pageerror", lambda error: said.append(str(error)))
    found.on("request", lambda sent: asked.append(sent.url))
    found.goto(path.as_uri())
    yield found, said, asked
    context.close()


@pytest.fixture
def tab(opened, path):
    """The page as it opens; afterwards nothing may have been said on the console, and nothing asked for but it."""
    found, said, asked = opened
    found.evaluate("""document.querySelector('.controls .reset').click(); location.hash = ''; scrollTo(0, 0);
        document.querySelectorAll('details').forEach(d => { d.open = false })""")
    yield found
    assert said == []
    assert {url.split("#")[0] for url in asked if not url.startswith("data:")} == {path.as_uri()}


def shown(tab):
    """Names of the claims that are really seen, whatever their attributes say, in their order."""
    script = "rows => rows.filter(r => r.checkVisibility()).map(r => r.dataset.name)"
    return tab.locator(".claims tbody tr").evaluate_all(script)


def in_view(tab, selector):
    box = tab.locator(selector).bounding_box()
    return box is not None and -5 <= box["y"] < 800


def test_policy_stops_what_is_put_into_the_page(browser, path, tmp_path):
    other = tmp_path / "page.html"
    other.write_text(path.read_text().replace("</main>", "<script>document.title = 'broken'</script></main>"))
    opened = browser.new_page()
    opened.goto(other.as_uri())
    assert opened.title().endswith("icl_lab")
    opened.close()


def test_the_first_explorable_answers_while_the_rest_is_still_read(browser, path, tmp_path):
    begun = tmp_path / "page.html"
    begun.write_text(path.read_text().partition("<main")[0])
    opened = browser.new_page()
    opened.goto(begun.as_uri())
    point = opened.locator("#layer [data-part=prompt] .handle").first
    before = point.get_attribute("transform")
    point.press("ArrowLeft")
    assert point.get_attribute("transform") != before
    opened.close()


def test_nothing_is_wider_than_the_window(tab):
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= tab.viewport_size["width"]
    assert tab.locator("img").count() > 70
    assert tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_every_picture_and_drawing_has_words_and_every_control_a_label(tab):
    for selector, name in (("img", "alt"), ("svg[role=img]", "aria-label")):
        words = tab.locator(selector).evaluate_all(f"all => all.map(one => one.getAttribute('{name}'))")
        assert words
        assert all(word and len(word) > 10 for word in words)
    named = "[...document.querySelectorAll('input, select')].every(one => one.labels.length === 1 || one.ariaLabel)"
    assert tab.evaluate(named)
    headings = tab.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_every_link_leads_to_something(tab):
    missing = tab.locator("a[href^='#']").evaluate_all(
        "links => links.map(l => decodeURIComponent(l.hash.slice(1).split('?')[0]))"
        ".filter(id => !document.getElementById(id))"
    )
    assert missing == []


def test_all_claims_of_the_ledger_are_there(tab, rows):
    assert sorted(shown(tab)) == sorted(row["id"] for row in rows)
    identities = sum(row.get("kind") == "identity" for row in rows)
    said = f"{len(rows)} of {len(rows)} rows: {len(rows) - identities} claims and {identities} identities"
    assert tab.locator(".shown").text_content() == said
    assert tab.locator(f"text='All {len(rows) - identities} claims'").count() == 1


def test_filters_by_paper_verdict_and_text(tab, rows):
    tab.get_by_label("Verdict", exact=True).select_option("fails")
    tab.get_by_label("Paper", exact=True).select_option("reddy")
    expected = {row["id"] for row in rows if row["id"].startswith("reddy.") and row["verdict"] == "fails"}
    assert set(shown(tab)) == expected
    tab.get_by_role("button", name="Reset", exact=True).click()
    assert len(shown(tab)) == len(rows)
    tab.get_by_label("Text", exact=True).fill("gradient step  COSINE")
    found = shown(tab)
    assert 0 < len(found) < 40
    for text in tab.locator(".claims tbody tr:not([hidden])").all_text_contents():
        assert all(word in text.lower() for word in ("gradient", "step", "cosine"))
    tab.get_by_label("Text", exact=True).fill("quagga")
    assert shown(tab) == []
    tab.get_by_role("button", name="Reset the filters").click()
    assert len(shown(tab)) == len(rows)
    assert tab.evaluate("document.activeElement.name") == "text"


def test_orders(tab):
    tab.get_by_label("Order", exact=True).select_option("name")
    assert shown(tab) == tab.evaluate("names => names.sort((a, b) => a.localeCompare(b))", shown(tab))
    tab.get_by_label("Order", exact=True).select_option("members")
    members = tab.locator(".claims tbody tr").evaluate_all("rows => rows.map(row => Number(row.dataset.members))")
    assert members == sorted(members, reverse=True)


def test_link_to_a_claim_shows_it_whatever_was_filtered(tab):
    tab.get_by_label("Text", exact=True).fill("quagga")
    tab.evaluate("location.hash = 'claim-von_oswald.one_step.cosine'")
    row = '[id="claim-von_oswald.one_step.cosine"]'
    tab.wait_for_function(f"""!document.querySelector('{row}').hidden""")
    for _ in range(20):  # the page's policy forbids wait_for_function, which evaluates a string again and again
        if in_view(tab, row):
            break
        tab.wait_for_timeout(100)
    assert in_view(tab, row)
    assert tab.evaluate("document.activeElement.id") == "claim-von_oswald.one_step.cosine"


def test_every_section_leads_to_exactly_its_claims_and_says_how_many(tab):
    """By name, not by words: ``reddy.landscape`` is in the reasons of others too."""
    links = tab.locator("a.filter").evaluate_all("links => links.map(l => [l.getAttribute('href'), l.textContent])")
    assert len(links) >= 40
    for href, label in dict(links).items():
        tab.evaluate("href => { location.hash = href }", href)
        tab.wait_for_timeout(20)
        names, experiment = shown(tab), href.partition("=")[2]
        assert all(name.startswith(f"{experiment}.") for name in names)
        assert len(names) == sum(map(int, re.findall(r"\d+", label))), label
    assert in_view(tab, "#claims")


def test_filters_are_kept_in_the_address(tab, browser, path):
    tab.get_by_label("Verdict", exact=True).select_option("fails")
    tab.get_by_label("Experiment", exact=True).select_option("reddy.transition")
    address = tab.evaluate("location.href")
    assert address.endswith("#claims?experiment=reddy.transition&verdict=fails")
    again = browser.new_page()
    again.goto(address)
    assert shown(again) == shown(tab) != []
    again.close()


def test_keyboard_reaches_the_content_first_and_opens_what_is_folded(browser, path):
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "main"
    folded = opened.locator("details.of-paper summary").first
    folded.focus()
    opened.keyboard.press("Enter")
    assert opened.locator('[id="von_oswald.one_step"]').is_visible()
    opened.close()


@pytest.fixture(scope="module")
def unfolded(browser, path):
    """The page with all that is folded, but few of the rows, cards and papers, which are alike."""
    opened = browser.new_page(reduced_motion="reduce", has_touch=True)
    opened.set_default_timeout(300_000)  # a large page, and the cores are busy
    opened.goto(path.as_uri())
    opened.evaluate("""() => {
        const all = (selector) => [...document.querySelectorAll(selector)];
        for (const [selector, kept] of [[".claims tbody tr", 8], ["section.paper", 2], ["article.experiment", 2]])
            for (const one of all(selector).slice(kept)) one.remove();
        for (const one of all("details")) one.open = true;
    }""")
    yield opened
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(axe, unfolded, width, scheme):
    unfolded.set_viewport_size({"width": width, "height": 844})
    unfolded.emulate_media(color_scheme=scheme)
    assert axe(unfolded) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_seen_on_its_ground(browser, path, scheme):
    opened = browser.new_page(color_scheme=scheme)
    opened.goto(path.as_uri())
    ground = luminance(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
    for selector in (
        "body",
        "small",
        ".source",
        ".verdict.holds",
        ".verdict.fails",
        ".verdict.not-resolved",
        ".glossary button",
    ):
        colour = opened.locator(f"main {selector}" if selector != "body" else "body").first
        other = luminance(colour.evaluate("one => getComputedStyle(one).color"))
        light, dark = max(ground, other), min(ground, other)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, selector)  # WCAG 2, level AA
    opened.close()


def luminance(colour):
    """Relative luminance of ``rgb(r, g, b)`` (WCAG 2)."""
    channels = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


def test_prints_the_article_and_neither_the_ledger_nor_a_control(browser, path):
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.emulate_media(media="print")
    for selector in ("form.controls", "nav", "table.claims"):
        assert opened.locator(selector).is_hidden()
    assert opened.locator("table.differs").is_visible()
    assert opened.evaluate("[...document.images].every(image => image.complete)")  # also far below the window
    pages = len(re.findall(rb"/Type\s*/Page[^s]", opened.pdf(format="A4")))
    assert 3 <= pages <= 30
    opened.close()


def test_few_tab_stops_lie_before_the_ledger_and_no_internal_name_above_it(tab):
    stops = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
        .filter(one => one.checkVisibility() && one.tabIndex >= 0 && !one.closest(".browser"))
        .filter(one => one.compareDocumentPosition(document.querySelector(".browser"))
            & Node.DOCUMENT_POSITION_FOLLOWING).length"""
    assert 20 < tab.evaluate(stops) <= 80
    seen = tab.evaluate("""() => { const main = document.querySelector(".browser"); main.hidden = true;
        const text = document.body.innerText; main.hidden = false; return text; }""")
    assert not re.findall(rf"\b(?:{'|'.join(ORDER)})\.\w+\.\w+", seen)


def test_words_of_the_glossary_are_one_tab_stop_among_which_arrows_move(tab):
    words = tab.locator(".glossary button")
    words.first.focus()
    for key, at in (("ArrowRight", 1), ("End", words.count() - 1), ("ArrowRight", 0), ("ArrowLeft", words.count() - 1)):
        tab.keyboard.press(key)
        assert tab.evaluate("document.activeElement.textContent") == words.nth(at).text_content()
        assert words.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1


def test_colours_need_no_function_of_recent_browsers(path):
    assert "light-dark(" not in path.read_text()


def test_names_keep_their_underscores(tab):
    assert tab.evaluate("getComputedStyle(document.querySelector('.claims summary')).textDecorationLine") == "none"


def test_reads_without_its_script(browser, path, rows):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(path.as_uri())
    assert opened.locator("form.controls").is_hidden()
    assert opened.locator(".claims tbody tr").count() == len(rows)
    context.close()
