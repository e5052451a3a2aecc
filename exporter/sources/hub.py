"""The model hub, asked for one small file and only when that was switched on."""

import re

from exporter.errors import SourceError
from exporter.sources.endpoint import Access, Endpoint

HUB_URL = "https://huggingface.co"
LIMIT_BYTES = 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


class HubDownload:
    """Fetches a model's config.json; follows no redirect and sends no key."""

    def __init__(self, base_url: str = HUB_URL, timeout_seconds: float = 5.0) -> None:
        self._base_url = base_url
        self._access = Access(timeout_seconds=timeout_seconds)

    def __call__(self, model_id: str) -> bytes:
        """The bytes of config.json on the main branch. Raises `SourceError`, also for what is no id of the hub."""
        if not _ID.fullmatch(model_id) or ".." in model_id:
            raise SourceError("model_config", "not_found", f"{model_id[:80]!a} is no id of a model hub (OWNER/NAME)")
        # It is asked once or seldom: neither the connection nor the authorities' certificates are held meanwhile.
        endpoint = Endpoint("model_config", self._base_url, self._access)
        try:
            with endpoint.get(f"/{model_id}/raw/main/config.json", "application/json", LIMIT_BYTES) as body:
                return b"".join(body)
        finally:
            endpoint.close()
