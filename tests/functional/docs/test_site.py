"""The manuals are built as a site without warnings of Sphinx."""

import pytest

from tests.tools import api, docs, site

pytest.importorskip("sphinx")

DOCS = api.REPOSITORY / "docs"
# without the fragments of the changelog
PAGES = [page for page in DOCS.rglob("*.md") if page.parent != DOCS / "changelog.d"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    assert site.build(folder) == 0
    return folder


def test_it_is_built_without_warnings_and_its_first_page_leads_on(built):
    assert 'url=docs/index.html"' in (built / "index.html").read_text(encoding="utf-8")
    assert (built / "docs/index.html").exists()


def test_every_manual_is_in_it(built):
    pages = [*PAGES, *api.REPOSITORY.glob("*.md")]
    names = [page.relative_to(api.REPOSITORY).with_suffix(".html") for page in pages]
    names += [name.replace(".md", ".html") for name in docs.references()]
    assert [str(name) for name in names if not (built / name).exists()] == []


def test_a_page_that_moved_leads_to_its_new_place(built):
    text = (built / "docs/how-to/reach.html").read_text(encoding="utf-8")
    assert 'url=consoles.html"' in text
    assert 'url=how-to/consoles.html"' in (built / "docs/reach.html").read_text(encoding="utf-8")


def test_no_page_is_a_stub_and_no_line_is_too_long():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(text.split()) > 120, page
        assert [line for line in text.splitlines() if len(line) > 140] == [], page
