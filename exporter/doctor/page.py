"""What is found about our own page: whether the daemon could serve it, and to whom."""

from exporter.doctor.finding import Finding
from exporter.errors import SettingsError
from exporter.run import guard_of, on_loopback
from exporter.settings import Settings


def page_findings(settings: Settings) -> list[Finding]:
    """What stands before the page with these settings; nothing is served and nobody is asked."""
    part = "page"
    try:
        guard = guard_of(settings)
    except SettingsError as error:
        return [Finding(part, "fault", fault, "", "the exporter does not start") for fault in error.faults]
    if guard is None:
        alone = on_loopback(settings.listen)
        cost = "" if alone else "whoever reaches the port may read it"
        change = (
            "" if alone else "a NetworkPolicy, VLLM_HEADROOM_PAGE_BEARER_TOKEN_FILE or VLLM_HEADROOM_WEB_CONFIG_FILE"
        )
        return [Finding(part, "note", f"{settings.listen} would be open to all who reach it", "", cost, change)]
    guard.close()
    return [Finding(part, "ok", f"{settings.listen} would be protected by: {guard.summary}")]
