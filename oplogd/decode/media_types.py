"""Media types of requests and answers."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
AVRO = "avro/binary"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"
HTML = "text/html"
PROMETHEUS = "text/plain; version=1.0.0"
