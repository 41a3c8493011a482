"""Writes the OpenAPI document to a file: `python -m tests.http.openapi_file FILE`."""

import sys
from pathlib import Path

from penstock.http.routes import encode_document

if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(encode_document(""))
