"""Starts the command ``oplogd``. Signals are handled before its modules are imported."""

from oplogd.host.early import leave_at_signals


def main() -> None:
    leave_at_signals()
    from oplogd.cli import main as run

    run()


if __name__ == "__main__":
    main()
