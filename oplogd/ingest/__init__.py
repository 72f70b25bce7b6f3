"""The way in: UDP and HTTP, the bounded queue, the writer."""
