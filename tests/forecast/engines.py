"""A made-up engine: readings with every counter the forecast reads, of a load told second by second."""

from dataclasses import dataclass, replace

from exporter.forecast.assessment import PoolView
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.reading import EngineReading, Histogram

BLOCK = 16
BOUNDS = (1.0, 10.0, 100.0, 1000.0, 10000.0, float("inf"))


def pool(blocks: int = 1000) -> PoolView:
    return PoolView(blocks, RequestDemand((GroupDemand(BLOCK),)))


def histogram(lengths: list[float]) -> Histogram:
    counts = tuple(float(sum(length <= bound for length in lengths)) for bound in BOUNDS)
    return Histogram(BOUNDS, counts, float(sum(lengths)), float(len(lengths)))


@dataclass
class Request:
    prompt: int
    output: int
    age: int = 0


class Engine:
    """Everything fits or is preempted; `tick` advances one second of `steps` decode steps."""

    def __init__(self, blocks: int = 1000, steps: int = 20) -> None:
        self.blocks, self.steps = blocks, steps
        self.time = 0.0
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.prompts: list[float] = []
        self.outputs: list[float] = []
        self.totals = dict.fromkeys(("steps", "tokens", "born", "prompt", "generated", "preempted"), 0.0)

    @property
    def used(self) -> int:
        return sum(-(-(r.prompt + r.age) // BLOCK) for r in self.running)

    def tick(self, arriving: list[Request] | None = None) -> EngineReading:
        self.time += 1.0
        self.waiting += arriving or []
        while self.waiting and self.used + -(-self.waiting[0].prompt // BLOCK) <= self.blocks:
            request = self.waiting.pop(0)
            self.running.append(request)
            self.totals["born"] += 1
            self.totals["prompt"] += request.prompt
            self.totals["tokens"] += request.prompt
        if self.running:
            self.totals["steps"] += self.steps
        for request in list(self.running):
            grown = min(self.steps, request.output - request.age)
            request.age += grown
            self.totals["generated"] += grown
            self.totals["tokens"] += grown
            if request.age >= request.output:
                self.running.remove(request)
                self.prompts.append(float(request.prompt))
                self.outputs.append(float(request.output))
        while self.used > self.blocks:
            self.waiting.insert(0, self.running.pop())
            self.totals["preempted"] += 1
        return self.reading()

    def reading(self) -> EngineReading:
        t = self.totals
        return EngineReading(
            time=self.time,
            model_name="m",
            engine="0",
            kv_usage=self.used / self.blocks,
            running=float(len(self.running)),
            waiting=float(len(self.waiting)),
            sleep_state="awake",
            preemptions=t["preempted"],
            prompt_tokens=t["prompt"],
            generation_tokens=t["generated"],
            finished=float(len(self.outputs)),
            iteration_tokens=Histogram((), (), t["tokens"], t["steps"]),
            first_tokens=Histogram((), (), 0.0, t["born"]),
            prompt_lengths=histogram(self.prompts),
            generation_lengths=histogram(self.outputs),
        )


def later(reading: EngineReading, seconds: float, **changes: object) -> EngineReading:
    """The same page some seconds later, but for `changes`."""
    return replace(reading, time=reading.time + seconds, **changes)  # type: ignore[arg-type]
