"""Says whether the committed files of the dashboard were built from the committed sources.

The build records a hash of its sources and one of the files that it wrote, so that this needs no
Node. `./dev web` builds, and calls this module to record them.
"""

from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "src" / "penstock" / "dashboard"
RECORD = BUILT / "sources.txt"
SOURCES = ("web/*.html", "web/*.ts", "web/*.js", "web/package*.json", "web/public/**/*",
           "web/src/**/*")  # fmt: skip
# Generated from the API. It has types only, which leave no trace in the build.
GENERATED = ROOT / "web/src/lib/schema.d.ts"


def hash_sources() -> str:
    found = {path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()}
    return hash_files(found - {GENERATED}, ROOT)


def hash_built(folder: Path = BUILT) -> str:
    found = {path for path in folder.rglob("*") if path.is_file()}
    return hash_files(found - {folder / RECORD.name}, folder)


def hash_files(paths: set[Path], root: Path) -> str:
    total = sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(sha256(path.read_bytes()).digest())
    return total.hexdigest()


def read_record() -> tuple[str, str]:
    """Returns the hashes of the sources and of the files that were built from them."""
    sources, built = RECORD.read_text().split()
    return sources, built


if __name__ == "__main__":
    RECORD.write_text(f"{hash_sources()}\n{hash_built()}\n")
