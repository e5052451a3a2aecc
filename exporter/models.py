"""The models a server serves: their length limit from the server, their architecture from the disk."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporter.errand import Errand
from exporter.errors import HeadroomError, SourceError, shown
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
"""Models that are remembered, each with its pool; a page that invents more is answered without facts."""
FORGET_SECONDS = 900.0
"""How long what nobody asks for keeps its place."""

PATIENCE_SECONDS = 1.0
"""How long a tick waits for a look at the disk; what comes later is taken then."""

Config = Mapping[str, Any]
_Found = tuple[ModelFacts, str]


@dataclass(slots=True)
class _Known:
    """A model with one pool; the engines of one model may have pools of different sizes."""

    model_name: str
    cache: CacheConfig | None
    asked: float
    """When it was asked for last."""
    facts: ModelFacts = field(default_factory=ModelFacts)
    fault: str | None = None
    """Why the architecture is not known; empty when it is, `None` before the first look."""
    until: float = float("-inf")
    """When to look again; infinite once everything is known."""
    errand: Errand[_Found] | None = None
    """A look that has not come back."""


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
        self._known: list[_Known] = []

    def facts(self, model_name: str, cache: CacheConfig | None, now: float) -> ModelFacts:
        """What is known of a model with this pool; looked for again after a while where something is missing."""
        known = self._remembered(model_name, cache, now)
        if known is None:
            return ModelFacts()
        known.asked = now
        if now >= known.until and all(each.errand is None for each in self._known):
            self._begin(known, now)
        if known.errand is not None and known.errand.done(0.0):
            self._end(known, now)
        return known.facts

    @property
    def health(self) -> SourceHealth | None:
        """Whether the architecture of every model that was asked for last is known."""
        if not self._known:
            return None
        last = max(known.asked for known in self._known)
        faults = {known.model_name: known.fault for known in self._known if known.asked == last and known.fault}
        message = shown("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        waiting = any(known.errand is not None for known in self._known)
        reason = "ok" if not faults else "timeout" if waiting else "unknown_architecture"
        return SourceHealth("model_config", self._server, not faults, reason, message)

    def _remembered(self, model_name: str, cache: CacheConfig | None, now: float) -> _Known | None:
        """Its place, an old one or a new one; `None` while there is none left."""
        for known in self._known:
            if known.model_name == model_name and known.cache == cache:
                return known
        self._known = [known for known in self._known if now - known.asked <= FORGET_SECONDS]
        if len(self._known) >= MAX_MODELS:
            return None
        self._known.append(_Known(model_name, cache, now))
        return self._known[-1]

    def _begin(self, known: _Known, now: float) -> None:
        """Look, in a thread: a model may lie on a file system that hangs, or behind a hub that does."""
        model = self._entry(known.model_name)
        length = self._max_model_len or (model.max_model_len if model else None)
        names = (model.root, model.id) if model else (known.model_name,)
        named = tuple(name for name in names if name)
        if known.fault is None:
            known.facts = ModelFacts(length)
        errand = _started(lambda: self._look(named, known.cache, length))
        if errand is None or (not errand.done(PATIENCE_SECONDS) and errand.abandon()):
            known.until = now + 1.0
            self._tell(known, "no thread is to be had to look for its config.json")
            return
        known.errand = errand
        if not errand.done(0.0):
            self._tell(known, "the search for its config.json has not come back")

    def _end(self, known: _Known, now: float) -> None:
        """Take what a look brought."""
        errand, known.errand = known.errand, None
        assert errand is not None  # noqa: S101 – whoever calls has seen it
        try:
            known.facts, fault = errand.answer()
        except Exception as error:
            fault = f"the search for its config.json failed ({type(error).__name__})"
        complete = known.facts.arithmetic is not None and known.facts.max_model_len is not None
        known.until = float("inf") if complete else now + RETRY_SECONDS
        self._tell(known, fault)

    def _tell(self, known: _Known, fault: str) -> None:
        if fault != known.fault:
            log = logging.getLogger(__name__)
            if fault:
                log.warning("model %s: %s; what needs no architecture goes on", known.model_name, fault)
            else:
                log.info("model %s: its architecture is known", known.model_name)
        known.fault = fault

    def _look(self, names: tuple[str, ...], cache: CacheConfig | None, length: int | None) -> _Found:
        arithmetic: LiveArithmetic | None = None
        allocations: Mapping[str, int] = {}
        try:
            found = self._find(names)
            fault = "" if found.config is not None else found.reason
            if found.config is not None:
                allocations = self._allocations(found.config)
                arithmetic = self._derive(found.config, cache or CacheConfig(), length)
        except HeadroomError as error:
            fault = str(error)
        except Exception as error:  # a config that nobody foresaw must not cost the page
            logging.getLogger(__name__).debug("looking for a model failed", exc_info=True)
            fault = f"its config.json cannot be made sense of ({type(error).__name__})"
        return ModelFacts(length, arithmetic, allocations), fault

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


def _started(look: Callable[[], _Found]) -> Errand[_Found] | None:
    try:
        return Errand(look)
    except RuntimeError:
        return None
