"""A site is the same for the same seed, and looks like a site."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from vmtoll.model.errors import SiteError
from vmtoll.sites import SITES_DIR, build, load_site, lockstep_list, paths, site_files, url_list
from vmtoll.sites.build import MTIME_S

pytestmark = pytest.mark.slow

OFFICE = SITES_DIR / "office.yml"
MAGIC = {
    "html": b"<!DOCTYPE html>",
    "gif": b"GIF89a",
    "jpg": b"\xff\xd8\xff\xe0",
    "pdf": b"%PDF-1.4",
    "doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
}


def test_the_office_site_has_the_promised_sizes_and_kinds(tmp_path: Path) -> None:
    made = build(OFFICE, tmp_path)
    sizes = [f["size_bytes"] for f in made["files"]]
    assert len(sizes) == 150
    assert min(sizes) == 2
    assert max(sizes) == 262144
    assert sum(s < 10_000 for s in sizes) > len(sizes) / 2, "the bulk is small"
    assert sum(sorted(sizes)[-15:]) > sum(sizes) / 2, "a tenth of the files holds half of the bytes"
    kinds = Counter(f["path"].rpartition(".")[2] for f in made["files"])
    assert set(kinds) == set(MAGIC)
    for entry in made["files"]:
        body = (tmp_path / "office" / entry["path"]).read_bytes()
        assert len(body) == entry["size_bytes"]
        if len(body) > 250:
            assert body.startswith(MAGIC[entry["path"].rpartition(".")[2]]), entry["path"]


def test_the_index_page_is_readable_html(tmp_path: Path) -> None:
    build(OFFICE, tmp_path)
    text = (tmp_path / "office" / "index.html").read_text(encoding="ascii")
    assert text.rstrip().endswith("</body></html>")
    assert text.count("<p>") == text.count("</p>") > 1


def test_the_same_seed_gives_the_same_bytes_and_times(tmp_path: Path) -> None:
    one, two = build(OFFICE, tmp_path / "one"), build(OFFICE, tmp_path / "two")
    assert one == two == site_files(load_site(OFFICE))
    assert json.loads((tmp_path / "one" / "office.manifest.json").read_text()) == one
    for path in [*(tmp_path / "one").rglob("*")]:
        assert path.stat().st_mtime == MTIME_S, path


def test_the_content_is_what_it_was_when_results_were_published() -> None:
    digest = site_files(load_site(OFFICE))["digest"]
    assert digest == "cfc4d59b96cca531f5717b2ab040ab9c8fe311ded9eed1790c9760f2d163b026", (
        "another content makes older runs incomparable: raise the seed on purpose only"
    )


def test_building_again_removes_what_does_not_belong(tmp_path: Path) -> None:
    build(OFFICE, tmp_path)
    (tmp_path / "office" / "old").mkdir()
    (tmp_path / "office" / "old" / "page.html").write_text("x")
    build(OFFICE, tmp_path)
    assert not (tmp_path / "office" / "old").exists()


def test_url_lists_repeat_by_weight_and_are_stable() -> None:
    made = site_files(load_site(OFFICE))
    urls = url_list(made, "http://198.18.0.20:8080", 1)
    counts = Counter(urls)
    for entry in made["files"]:
        assert counts[f"http://198.18.0.20:8080/{entry['path']}"] == entry["weight"] >= 1
    assert len(urls) == 400
    assert urls == url_list(made, "http://198.18.0.20:8080", 1) != url_list(made, "http://198.18.0.20:8080", 2)


@pytest.mark.parametrize("name", ["office", "pages", "home-2025"])
def test_paths_are_those_of_the_files(name: str) -> None:
    """Drawn, listed, and with compressed variants."""
    site = load_site(SITES_DIR / f"{name}.yml")
    assert paths(site) == [file["path"] for file in site_files(site)["files"]]


@pytest.mark.parametrize("users", [1, 2, 10, 20])
def test_the_lockstep_list_sends_the_same_bytes_as_the_whole(users: int) -> None:
    made = site_files(load_site(OFFICE))
    sizes = {f"/{f['path']}": f["size_bytes"] for f in made["files"]}

    def mean(urls: list[str]) -> float:
        return sum(sizes[u] for u in urls) / len(urls)

    share = lockstep_list(made, "", 1, users)
    assert len(share) * users == 400
    assert mean(share) == pytest.approx(mean(url_list(made, "", 1)), rel=0.12)


def test_the_command_line_builds_and_refuses(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "vmtoll.sites"]
    done = subprocess.run([*run, "office", str(tmp_path)], capture_output=True, text=True, check=True)
    assert "150 files" in done.stdout
    wrong = subprocess.run([*run, "offce", str(tmp_path)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "office" in wrong.stderr


def test_a_site_with_unknown_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "office.yml"
    path.write_text(OFFICE.read_text() + "colour: blue\n")
    with pytest.raises(SiteError, match="colour"):
        load_site(path)


def test_a_site_may_list_its_pages(tmp_path: Path) -> None:
    made = build(SITES_DIR / "pages.yml", tmp_path)
    sizes = {file["path"]: file["size_bytes"] for file in made["files"]}
    assert sizes == {
        "page-357.html": 357,
        "page-4k.html": 4096,
        "page-100k.html": 102400,
        "image-9270.jpg": 9270,
        "hello.html": 39,
        "php.html": 2407,
    }
    assert {path: (tmp_path / "pages" / path).stat().st_size for path in sizes} == sizes
    assert made == site_files(load_site(SITES_DIR / "pages.yml"))
    assert (tmp_path / "pages/image-9270.jpg").read_bytes().startswith(b"\xff\xd8\xff")


def test_a_drawn_site_may_have_pages_outside_of_its_mix(tmp_path: Path) -> None:
    alone, path = load_site(OFFICE), tmp_path / "office.yml"
    path.write_text(OFFICE.read_text() + "pages: {news/large.pdf: 70000, hello.html: hi}\n")
    made = build(path, tmp_path / "out")
    assert (tmp_path / "out/office/news/large.pdf").stat().st_size == 70000
    assert (tmp_path / "out/office/hello.html").read_text() == "hi"
    unrequested = [file for file in made["files"] if file["weight"] == 0]
    assert [file["path"] for file in unrequested] == ["hello.html", "news/large.pdf"]
    assert [file for file in made["files"] if file["weight"]] == site_files(alone)["files"]
    assert url_list(made, "", 1) == url_list(site_files(alone), "", 1)
    assert lockstep_list(made, "", 1, 10) == lockstep_list(site_files(alone), "", 1, 10)


@pytest.mark.parametrize("page", ["page.exe: 5", "/page.html: 5", "page.html: 0"])
def test_a_page_has_a_kind_and_a_size(tmp_path: Path, page: str) -> None:
    path = tmp_path / "one.yml"
    path.write_text(f"description: one page\nseed: 1\npages: {{{page}}}\n")
    with pytest.raises(SiteError, match=r"relative path .*kind of file"):
        load_site(path)


def test_the_home_page_of_2025_has_the_published_bytes_and_requests(tmp_path: Path) -> None:
    """Web Almanac 2025, Page Weight: medians of desktop home pages, and of their requests."""
    made = build(SITES_DIR / "home-2025.yml", tmp_path)
    assert made == site_files(load_site(SITES_DIR / "home-2025.yml"))
    asked = {file["path"].removesuffix(".gz"): file["size_bytes"] for file in made["files"] if file["weight"]}
    assert {file["weight"] for file in made["files"]} == {0, 1}
    kinds: dict[str, list[int]] = {}
    for path, size in asked.items():
        kinds.setdefault(path.partition("/")[0] if "/" in path else "html", []).append(size)
    assert {kind: (len(sizes), sum(sizes) / 1024) for kind, sizes in kinds.items()} == {
        "html": (2, 22), "css": (8, 82), "fonts": (4, 139), "js": (22, 697), "images": (19, 1058)
    }  # fmt: skip
    assert sorted(kinds["images"])[9] == 8 * 1024, "the median image"


def test_a_compressed_variant_matches_its_file(tmp_path: Path) -> None:
    made = build(SITES_DIR / "home-2025.yml", tmp_path)
    weights = {file["path"]: file["weight"] for file in made["files"]}
    variants = [path for path in weights if path.endswith(".gz")]
    assert len(variants) == 35, "HTML, CSS, scripts and the three images in SVG"
    for path in variants:
        packed, plain = (tmp_path / "home-2025" / name for name in (path, path.removesuffix(".gz")))
        assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
        assert (weights[path], weights[path.removesuffix(".gz")]) == (1, 0)
        assert packed.stat().st_size < 500 or plain.stat().st_size > 2 * packed.stat().st_size


@pytest.mark.parametrize(
    ("path", "magic"),
    [("a.css", b"."), ("a.js", b"function "), ("a.svg", b"<svg "), ("a.webp", b"RIFF"), ("a.woff2", b"wOF2")],
)
@pytest.mark.parametrize("size", [1, 20, 70, 3000])
def test_modern_kinds_have_their_signature_and_size(tmp_path: Path, path: str, magic: bytes, size: int) -> None:
    file = tmp_path / "modern.yml"
    file.write_text(f"description: one file\nseed: 1\npages: {{{path}: {size}}}\n")
    build(file, tmp_path / "out")
    assert (tmp_path / "out/modern" / path).read_bytes().startswith(magic[:size])
    assert (tmp_path / "out/modern" / path).stat().st_size == size


@pytest.mark.parametrize("size", [64, 65, 100, 1000, 12345])
@pytest.mark.parametrize("kind", ["html", "css", "js", "svg"])
def test_a_variant_has_exactly_the_size_that_the_site_names(tmp_path: Path, kind: str, size: int) -> None:
    file = tmp_path / "packed.yml"
    file.write_text(
        f"description: one file\nseed: 1\npages: {{a.{kind}: {{size_bytes: {size}, weight: 3, gzip: true}}}}\n"
    )
    made = build(file, tmp_path / "out")
    plain = (tmp_path / f"out/packed/a.{kind}").read_bytes()
    assert [(entry["path"], entry["weight"]) for entry in made["files"]] == [(f"a.{kind}", 0), (f"a.{kind}.gz", 3)]
    assert made["files"][1]["size_bytes"] == size
    assert gzip.decompress((tmp_path / f"out/packed/a.{kind}.gz").read_bytes()) == plain


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("a.jpg: {size_bytes: 5000, weight: 1, gzip: true}", "only text has a compressed variant"),
        ("a.js: {size_bytes: 63, weight: 1, gzip: true}", "gzip: needs size_bytes of 64 or more"),
    ],
)
def test_a_variant_that_cannot_be_is_refused(tmp_path: Path, page: str, error: str) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text(f"description: one page\nseed: 1\npages: {{{page}}}\n")
    with pytest.raises(SiteError, match=error) as caught:
        load_site(path)
    assert "\n" not in str(caught.value)
