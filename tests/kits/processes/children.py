"""The processes that a process has started."""

from pathlib import Path


def child_pids(pid: int) -> list[int]:
    """Return the process ids of the children that run now, the oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent, *others = text.rpartition(")")[2].split()
        if int(parent) == pid and state != "Z":
            found.append((int(others[17]), int(stat.parent.name)))  # by the time of the start
    return [child for _, child in sorted(found)]


def lives(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
