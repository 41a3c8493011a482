"""Says whether the committed files of the dashboard were built from the committed sources.

The build records a hash of its sources, so that this needs no Node. `./dev web` builds, and calls
this module to record it.
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
    total = sha256()
    for path in sorted(found - {GENERATED}):
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(sha256(path.read_bytes()).digest())
    return total.hexdigest()


if __name__ == "__main__":
    RECORD.write_text(hash_sources() + "\n")
