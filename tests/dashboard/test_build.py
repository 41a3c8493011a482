"""The built files that are committed and shipped."""

import re
import shutil
import subprocess
import zipfile
from gzip import compress
from pathlib import Path

import pytest

from penstock.http.routes import encode_document
from tests.dashboard.build import BUILT, ROOT, hash_built, hash_sources, read_record
from tests.extent import LONG

# What a browser loads for the first page.
MAX_FIRST_LOAD_BYTES = 60_000


def test_the_build_is_that_of_the_sources() -> None:
    assert read_record()[0] == hash_sources(), "run ./dev web and commit the result"


def test_no_built_file_was_changed_by_hand() -> None:
    assert read_record()[1] == hash_built(), "run ./dev web and commit the result"


def run_npm(*words: str) -> None:
    """Runs a script of `web/`, if Node and its packages are installed."""
    npm = shutil.which("npm")
    if npm is None or not (ROOT / "web/node_modules").is_dir():
        pytest.skip("Node and the packages of web/ build the dashboard")
    command = [npm, "--prefix", str(ROOT / "web"), "run", "--silent", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_build_of_the_sources_gives_the_same_files(tmp_path: Path) -> None:
    run_npm("build", "--", "--outDir", str(tmp_path), "--emptyOutDir")
    assert hash_built(tmp_path) == hash_built(), "run ./dev web and commit the result"


@LONG
def test_the_pages_fit_the_api() -> None:
    """The types are those of the API as it is, and not as it was when they were written."""
    (ROOT / "web/openapi.json").write_bytes(encode_document(""))
    run_npm("types")
    run_npm("check")


def test_every_named_asset_exists_and_nothing_comes_from_elsewhere() -> None:
    for page in ("index.html", "docs.html"):
        text = (BUILT / page).read_text()
        named = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert named
        for name in named:
            assert name.startswith("./assets/"), name
            assert (BUILT / name).is_file(), name
        assert "<style" not in text
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)


def test_the_first_page_is_small() -> None:
    names = set(re.findall(r'\./(assets/[^"]+)"', (BUILT / "index.html").read_text()))
    pieces = [path for path in (BUILT / "assets").iterdir() if is_of_overview(path.name)]
    files = {BUILT / name for name in names} | set(pieces)
    assert sum(len(compress(file.read_bytes())) for file in files) < MAX_FIRST_LOAD_BYTES


def is_of_overview(name: str) -> bool:
    return bool(re.match(r"(Overview|QueueTable|Chart|Spark|Time|Button|Empty|Icon)\b", name))


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    if not Path(uv).exists():
        pytest.skip("uv builds the wheel")
    command = [uv, "build", "--wheel", "--offline", "--out-dir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no wheel can be built here: {built.stderr[-200:]}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    for file in BUILT.rglob("*"):
        if file.is_file():
            assert f"penstock/dashboard/{file.relative_to(BUILT).as_posix()}" in shipped
