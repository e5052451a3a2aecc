"""The models a server serves: their length limit from the server, their architecture from the disk."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.errors import HeadroomError, SourceError
from exporter.reading import CacheConfig
from exporter.snapshot import SourceHealth
from exporter.sources.model_config import ModelConfig
from exporter.sources.vllm import ServedModel
from exporter.watch import ModelFacts

if TYPE_CHECKING:
    from exporter.kv.live import LiveArithmetic

RETRY_SECONDS = 60.0
"""How often a model that is not fully known is asked for again; a server may load for minutes."""
MAX_MODELS = 64
"""Models that are remembered; a page that invents more is answered without facts."""

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Known:
    facts: ModelFacts
    cache: CacheConfig | None
    fault: str
    """Why the architecture is not known; empty when it is."""
    until: float
    """When to ask again; infinite once everything is known."""


class ServedModels:
    """Knows the models of one server; asks rarely and never raises.

    `served` lists them (`SourceError` when the server does not answer); `find` looks for the config.json of a model by
    its root and id; `derive` turns config, cache config and length limit into the arithmetic, or raises
    `HeadroomError`; `allocations` gives the plausible next allocations on one GPU.
    """

    def __init__(
        self,
        served: Callable[[], tuple[ServedModel, ...]],
        find: Callable[[tuple[str, ...]], ModelConfig],
        derive: Callable[[Config, CacheConfig, int | None], "LiveArithmetic"],
        allocations: Callable[[Config], Mapping[str, int]],
        *,
        max_model_len: int | None = None,
        server: str = "",
    ) -> None:
        self._served = served
        self._find = find
        self._derive = derive
        self._allocations = allocations
        self._max_model_len = max_model_len
        self._server = server
        self._known: dict[str, _Known] = {}

    def facts(self, model_name: str, cache: CacheConfig | None, now: float) -> ModelFacts:
        """What is known of a model; asked again after a while where something is missing, and when the pool changed."""
        known = self._known.get(model_name)
        if known is None and len(self._known) >= MAX_MODELS:
            return ModelFacts()
        if known is None or known.cache != cache or now >= known.until:
            before = known.fault if known else None
            known = self._known[model_name] = self._learn(model_name, cache, now)
            if known.fault != before:
                log = logging.getLogger(__name__)
                if known.fault:
                    log.warning("model %s: %s; what needs no architecture goes on", model_name, known.fault)
                else:
                    log.info("model %s: its architecture is known", model_name)
        return known.facts

    @property
    def health(self) -> SourceHealth | None:
        """Whether every served model's architecture is known."""
        if not self._known:
            return None
        faults = {name: known.fault for name, known in self._known.items() if known.fault}
        message = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        reason = "unknown_architecture" if faults else "ok"
        return SourceHealth("model_config", self._server, not faults, reason, message)

    def _learn(self, model_name: str, cache: CacheConfig | None, now: float) -> _Known:
        model = self._entry(model_name)
        length = self._max_model_len or (model.max_model_len if model else None)
        names = (model.root, model.id) if model else (model_name,)
        found = self._find(tuple(name for name in names if name))
        arithmetic: LiveArithmetic | None = None
        allocations: Mapping[str, int] = {}
        fault = "" if found.config is not None else found.reason
        if found.config is not None:
            try:
                allocations = self._allocations(found.config)
                arithmetic = self._derive(found.config, cache or CacheConfig(), length)
            except HeadroomError as error:
                fault = str(error)
        complete = arithmetic is not None and length is not None
        until = float("inf") if complete else now + RETRY_SECONDS
        return _Known(ModelFacts(length, arithmetic, allocations), cache, fault, until)

    def _entry(self, model_name: str) -> ServedModel | None:
        """The served model of a page's `model_name`: by its id, else the only base model there is."""
        try:
            models = self._served()
        except SourceError as error:
            logging.getLogger(__name__).debug("%s", error)
            return None
        bases = [model for model in models if model.parent is None]
        named = [model for model in models if model.id == model_name]
        return named[0] if named else bases[0] if len(bases) == 1 else None
