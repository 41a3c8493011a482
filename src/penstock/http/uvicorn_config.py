"""Configures uvicorn and carries our connection limits."""

from typing import Any

import uvicorn

from penstock.http.state import ServerLimits

KEEP_ALIVE_S = 75


class UvicornConfig(uvicorn.Config):
    def __init__(self, app: Any, limits: ServerLimits, grace: float = 30.0) -> None:
        super().__init__(
            app,
            http="httptools",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(grace),
        )
        self.limits = limits
