"""The HTTP service: publish, claim, settle and operate from any language."""

from penstock.extras import require_extra

with require_extra("server"):
    from penstock.http.auth.identity import TrustedIssuers
    from penstock.http.mount import PenstockApp, create_app
    from penstock.http.state import ServerLimits

__all__ = ["PenstockApp", "ServerLimits", "TrustedIssuers", "create_app"]
