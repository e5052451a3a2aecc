"""A real server whose scheduler keeps a ledger and takes its time between steps."""

from collections.abc import Mapping
from pathlib import Path

from tests_vllm.server import VllmServer
from tests_vllm.waste import Event, events

REPOSITORY = Path(__file__).parents[1]
BLOCK_SIZE = 32
USUAL = ("--block-size", str(BLOCK_SIZE), "--max-num-batched-tokens", "2048")


class PacedServer(VllmServer):
    """vLLM with `ledger.Ledger`: a step begins `pace` seconds after the one before it, or when it can."""

    def __init__(
        self,
        model: Path,
        place: Path,
        name: str,
        *flags: str,
        pace: float = 0.02,
        max_model_len: int = 4096,
        more: Mapping[str, str] | None = None,
        root: str = "",
        key: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        """`name` tells its files in `place` apart; `more` is added to its environment."""
        self.ledger = place / f"{name}.ledger"
        self._pace = place / f"{name}.pace"
        self.pace(pace)
        super().__init__(
            model,
            place / f"{name}.log",
            *("--max-model-len", str(max_model_len), *USUAL, *flags),
            *("--scheduler-cls", "tests_vllm.ledger.Ledger"),
            environment={
                "PYTHONPATH": str(REPOSITORY),
                "LEDGER_FILE": str(self.ledger),
                "LEDGER_PACE_FILE": str(self._pace),
                **(more or {}),
            },
            root=root,
            key=key,
            certificate=certificate,
        )

    def pace(self, seconds: float) -> None:
        """From the next step on."""
        fresh = self._pace.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self._pace)

    def events(self, since: float = 0.0) -> list[Event]:
        """What its ledger says from a moment on."""
        return events(self.ledger, since)
