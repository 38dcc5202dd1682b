"""What Prometheus is told: requests, times, tokens, queue, cache, memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elmokit.encoders import Elmo
from elmokit.server.service import Service, Timing

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MULTIPLE = "PROMETHEUS_MULTIPROC_DIR"  # set where several processes count together


class Metrics:
    """The counters of one process, or of all workers together."""

    def __init__(self, service: Service) -> None:
        self.service = service
        own: Any = {"registry": None if MULTIPLE in os.environ else CollectorRegistry()}
        self.registry: CollectorRegistry = own["registry"] or CollectorRegistry()
        alive: Any = {"multiprocess_mode": "livesum"}
        self.requests = Counter("elmokit_requests", "Requests.", ["route", "method", "status"], **own)
        self.under_way = Gauge("elmokit_requests_under_way", "Requests under way.", **own, **alive)
        self.total = Histogram("elmokit_request_seconds", "Time of a request.", ["route"], buckets=SECONDS, **own)
        self.queue = Histogram("elmokit_queue_seconds", "Time in the queue.", buckets=SECONDS, **own)
        self.model = Histogram("elmokit_model_seconds", "Time in the model.", buckets=SECONDS, **own)
        self.words = Counter("elmokit_words", "Words that were read.", **own)
        self.batch = Histogram("elmokit_batch_tokens", "Tokens in a batch.", buckets=TOKENS, **own)
        self.batch_seconds = Histogram("elmokit_batch_seconds", "Time of a batch.", buckets=SECONDS, **own)
        service.model.ran = self._ran
        if MULTIPLE in os.environ:
            from prometheus_client.multiprocess import MultiProcessCollector

            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        self.registry.register(_Now(service))

    def note(self, route: str, method: str, status: int, timing: Timing, seconds: float) -> None:
        """A request has ended."""
        self.requests.labels(route, method, str(status)).inc()
        self.total.labels(route).observe(seconds)
        if timing.texts:
            self.queue.observe(timing.queue)
            self.model.observe(timing.model)
            self.words.inc(timing.tokens)

    def text(self) -> bytes:
        """In Prometheus's text format."""
        return generate_latest(self.registry)

    def _ran(self, tokens: int, seconds: float) -> None:
        self.batch.observe(tokens)
        self.batch_seconds.observe(seconds)


class _Now:
    """What is read when it is asked for; of the process that answers."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        service = self.service
        yield GaugeMetricFamily("elmokit_queue_tokens", "Tokens that wait or run.", value=service.model.held)
        yield GaugeMetricFamily("elmokit_queue_jobs", "Jobs that wait.", value=len(service.model.waiting))
        yield GaugeMetricFamily("elmokit_queue_wait_seconds", "Wait of a new request.", value=service.model.wait)
        yield GaugeMetricFamily("elmokit_healthy", "1 while the model thread works.", value=service.problem is None)
        yield GaugeMetricFamily("elmokit_memory_bytes", "Resident memory.", value=resident())
        hits = CounterMetricFamily("elmokit_word_cache_hits", "Words found in the word cache.", labels=["model"])
        misses = CounterMetricFamily("elmokit_word_cache_misses", "Words not found there.", labels=["model"])
        for name, encoder in service.encoders.items():
            if isinstance(encoder, Elmo):
                hits.add_metric([name], encoder.cache_info.hits)
                misses.add_metric([name], encoder.cache_info.misses)
        yield hits
        yield misses


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
