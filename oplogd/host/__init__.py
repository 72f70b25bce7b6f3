"""The machine: sockets, logs, systemd, descriptors, signals."""
