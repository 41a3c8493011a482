"""Clients that are generated from the OpenAPI document compile, and work against a server.

The generators are installed once, into a cache. Set PENSTOCK_TEST_CACHE to move it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.cli.terminal import until
from tests.http.flaky import FlakyProxy, refuse_every_other_call
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Served

SOURCES = Path(__file__).parent / "clients"
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "typescript"
CACHE = Path(os.environ.get("PENSTOCK_TEST_CACHE", Path.home() / ".cache" / "penstock-tests"))
PYTHON_GENERATOR = "openapi-python-client==0.29.1"
needs_node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")),
    reason="needs Node and npm to generate and compile TypeScript clients",
)


def run(*words: object, cwd: Path) -> str:
    line = [str(word) for word in words]
    ran = subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, f"{' '.join(line)}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def install_once(name: str, seed: str, *commands: list[object]) -> Path:
    """Runs the commands in a directory of the cache, unless they have run before."""
    place = CACHE / f"{name}-{hashlib.sha256(seed.encode()).hexdigest()[:12]}"
    if not place.exists():
        fresh = place.with_name(f"{place.name}-{os.getpid()}")
        fresh.mkdir(parents=True)
        try:
            for command in commands:
                run(*command, cwd=fresh)
            # Fails if another process was faster.
            with suppress(OSError):
                fresh.rename(place)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("generated")
    with serve_with_auth(f"sqlite:///{home}/queue.db", home) as running:
        yield running


@pytest.fixture(scope="module")
def node(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the document, the workers and the generators."""
    manifest = (SOURCES / "package.json").read_text()
    installed = install_once(
        "node",
        manifest,
        ["cp", SOURCES / "package.json", "."],
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"],
    )
    home = tmp_path_factory.mktemp("node")
    (home / "node_modules").symlink_to(installed / "node_modules")
    for each in SOURCES.glob("*.*"):
        shutil.copy(each, home)
    (home / "openapi.json").write_bytes(server.get("/openapi.json").body)
    return home


@needs_node
def test_redocly_finds_no_errors_in_the_document(node: Path) -> None:
    run("node_modules/.bin/redocly", "lint", "openapi.json", "--max-problems=1000", cwd=node)


@needs_node
def test_typescript_clients_compile_and_work(node: Path, server: Served) -> None:
    tools = Path("node_modules/.bin")
    run(tools / "openapi-typescript", "openapi.json", "-o", "schema.d.ts", cwd=node)
    run(tools / "openapi-ts", "-i", "openapi.json", "-o", "hey", "-c", "@hey-api/client-fetch",
        cwd=node)  # fmt: skip
    run(tools / "tsc", "-p", ".", cwd=node)
    url = f"http://127.0.0.1:{server.port}"
    said = run("node", "built/fetch_worker.js", url, server.key, cwd=node)
    assert '"shown":{"got":{"number":7},"duplicate":false}' in said
    assert run("node", "built/hey_worker.js", url, server.key, cwd=node) == "completed\n"


@needs_node
def test_the_typescript_example_survives_409_and_503(node: Path, server: Served) -> None:
    home = node / "example"
    shutil.copytree(EXAMPLE, home, ignore=shutil.ignore_patterns("node_modules", "built"))
    (home / "node_modules").symlink_to((node / "node_modules").resolve())
    tools = home / "node_modules" / ".bin"
    run(tools / "openapi-typescript", node / "openapi.json", "-o", "schema.d.ts", cwd=home)
    run(tools / "tsc", "-p", ".", cwd=home)
    queue = server.queue()
    ids = [server.publish(queue, number) for number in range(3)]
    with FlakyProxy(server.port, refuse_every_other_call) as flaky:
        worker = keyed(server, "worker")
        shown = {**os.environ, "PENSTOCK_SERVER": flaky.url, "PENSTOCK_KEY": worker.key or ""}
        line = ["node", "built/worker.js", queue]
        with subprocess.Popen(line, cwd=home, env=shown) as running:
            try:
                until(lambda: all(server.state(id) == "completed" for id in ids))
            finally:
                running.terminate()
    assert running.returncode == 0
    assert {409, 503} <= set(flaky.answered)
    results = [server.get(f"/v1/messages/{id}/result").json for id in ids]
    assert results == [{"echo": number} for number in range(3)]


def test_the_typescript_example_has_the_versions_that_are_tested() -> None:
    example = msgspec.json.decode((EXAMPLE / "package.json").read_bytes())
    tested = msgspec.json.decode((SOURCES / "package.json").read_bytes())["dependencies"]
    assert (example["dependencies"] | example["devDependencies"]).items() <= tested.items()


def test_a_python_client_is_generated_and_works(server: Served, tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    python = Path("bin/python") if os.name == "posix" else Path("Scripts/python.exe")
    installed = install_once(
        "python",
        PYTHON_GENERATOR + sys.version,
        [uv, "venv", "--relocatable", "--python", sys.executable, "."],
        [uv, "pip", "install", "--python", python, PYTHON_GENERATOR],
    )
    (tmp_path / "openapi.json").write_bytes(server.get("/openapi.json").body)
    generate = [
        "generate",
        "--path",
        "openapi.json",
        "--output-path",
        "generated",
        "--meta",
        "none",
    ]
    run(installed / python, "-m", "openapi_python_client", *generate, cwd=tmp_path)
    shutil.copy(SOURCES / "python_worker.py", tmp_path)
    url = f"http://127.0.0.1:{server.port}"
    said = run(installed / python, "python_worker.py", url, server.key, cwd=tmp_path)
    assert said == '{"got":{"number":7}}\n'
