"""``oplogd`` with a provider of OpenTelemetry that logs the name and attributes of each span."""

import sys
from typing import Any

from opentelemetry import trace

from oplogd.cli import main


class LoggingTracer(trace.NoOpTracer):
    def start_span(self, name: str, *args: Any, **options: Any) -> trace.Span:
        print(f"span {name}: {options.get('attributes')}", file=sys.stderr, flush=True)
        return super().start_span(name, *args, **options)


class LoggingProvider(trace.TracerProvider):
    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        return LoggingTracer()


if __name__ == "__main__":
    trace.set_tracer_provider(LoggingProvider())
    trace.get_tracer("test").start_span("control", attributes={"is_logged": True})
    main()
