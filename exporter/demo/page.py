"""The embedded engine's metrics page, as vLLM 0.32 writes it."""

import math
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from exporter.demo.engine import DemoEngine
from exporter.demo.families import CACHE_CONFIG, CACHE_CONFIG_LABELS, FAMILIES, HISTOGRAMS, REJECTIONS, Family
from exporter.demo.tally import Buckets


class PageCollector:
    """The families of one server's engines; `created` is when they started, in Unix seconds."""

    def __init__(self, engines: Sequence[DemoEngine], created: float) -> None:
        self._engines = engines
        self._created = created

    def collect(self) -> Iterator[Metric]:
        """Every family with the samples of every engine."""
        for family in FAMILIES:
            yield self._plain(family)
        yield self._rejections()
        for name, text, seen in HISTOGRAMS:
            metric = Metric("vllm:" + name, text, "histogram")
            for engine in self._engines:
                self._add_histogram(metric, engine, seen(engine.tally))
            yield metric
        config = Metric("vllm:cache_config_info", CACHE_CONFIG, "gauge")
        for engine in self._engines:
            config.add_sample(config.name, cache_config_labels(engine), 1.0)
        yield config

    def _plain(self, family: Family) -> Metric:
        metric = Metric("vllm:" + family.name, family.help, family.kind)
        for engine in self._engines:
            for label, value in family.values(engine).items():
                labels = _labels(engine)
                if family.label is not None:
                    labels[family.label] = label
                if family.kind == "gauge":
                    metric.add_sample(metric.name, labels, value)
                else:
                    self._add_counter(metric, labels, value)
        return metric

    def _rejections(self) -> Metric:
        metric = Metric("vllm:admission_rejections", REJECTIONS, "counter")
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            labels = {"model_name": self._engines[0].config.model_name, "reason": reason}
            self._add_counter(metric, labels, 0)
        return metric

    def _add_counter(self, metric: Metric, labels: dict[str, str], value: float) -> None:
        metric.add_sample(metric.name + "_total", labels, value)
        metric.add_sample(metric.name + "_created", labels, self._created)

    def _add_histogram(self, metric: Metric, engine: DemoEngine, seen: Buckets) -> None:
        labels = _labels(engine)
        count = 0
        for bound, inside in zip((*seen.bounds, math.inf), seen.counts, strict=True):
            count += inside
            le = floatToGoString(bound)  # type: ignore[no-untyped-call] # prometheus_client leaves it untyped
            metric.samples.append(Sample(metric.name + "_bucket", {**labels, "le": le}, count))
        metric.add_sample(metric.name + "_count", labels, count)
        metric.add_sample(metric.name + "_sum", labels, seen.sum)
        metric.add_sample(metric.name + "_created", labels, self._created)


def cache_config_labels(engine: DemoEngine) -> dict[str, str]:
    """The labels of `cache_config_info`; `model_name` is not among them."""
    limits = engine.config.limits
    tokens = limits.num_gpu_blocks * limits.block_size
    return {
        **CACHE_CONFIG_LABELS,
        "engine": engine.config.engine,
        "block_size": str(limits.block_size),
        "num_gpu_blocks": str(limits.num_gpu_blocks),
        "enable_prefix_caching": str(limits.prefix_caching),
        "kv_cache_size_tokens": str(tokens),
        "kv_cache_max_concurrency": str(tokens / limits.max_model_len),
        "gpu_memory_utilization": str(engine.config.gpu_memory_utilization),
    }


def _labels(engine: DemoEngine) -> dict[str, str]:
    return {"engine": engine.config.engine, "model_name": engine.config.model_name}
