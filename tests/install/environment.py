"""A virtual environment with the package as users install it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def find_uv() -> str:
    """`uv run` names itself; `./dev` may have installed one."""
    found = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    assert os.path.exists(found), "these tests need uv"
    return found


def run(*words: str, cwd: Path | None = None, **more: str) -> str:
    """Runs a command outside the environment of the tests, and returns its output."""
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "PENSTOCK_URL", "PENSTOCK_APP")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        words, cwd=cwd, env={**environment, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


class Environment:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(find_uv(), "venv", str(folder))

    def install(self, *words: str) -> None:
        run(find_uv(), "pip", "install", "--python", self.program("python"), *words)

    def names(self) -> set[str]:
        listed = run(
            find_uv(), "pip", "list", "--python", self.program("python"), "--format", "json"
        )
        return {each["name"] for each in json.loads(listed)}

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def fail(self, *words: str, cwd: Path) -> str:
        """Runs a program that must fail, and returns what it says."""
        done = subprocess.run(
            [self.program(words[0]), *words[1:]], cwd=cwd, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode != 0, done.stdout
        return done.stderr
