"""Request bodies."""

import json

BODY = json.dumps({"text": "x" * 180}).encode()
PUBLISH = b'{"queue":"default","body":' + BODY + b"}"
