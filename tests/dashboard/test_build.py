"""The built files that are committed and shipped."""

import re
import shutil
import subprocess
import zipfile
from gzip import compress
from pathlib import Path

import pytest

from tests.dashboard.build import BUILT, RECORD, ROOT, hash_sources

# What a browser loads for the first page.
MAX_FIRST_LOAD_BYTES = 60_000


def test_the_build_is_that_of_the_sources() -> None:
    assert RECORD.read_text().strip() == hash_sources(), "run ./dev web and commit the result"


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
