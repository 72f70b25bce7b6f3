"""The orders in which drivers can change the folders of a table, without Spark.

A driver is a function of ``Folders``. For each of its steps it is run again, with the answers that
it had before, until it asks for one more. So a state is the files and the answers of each driver.
A driver may stop for ever in any of them, as a frozen one does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from oplog_pipe.spark.folders import Folders

Files = Mapping[str, str]
Driver = Callable[[Folders], str]
_Step = tuple[Any, ...]


class _AsksError(BaseException):
    def __init__(self, step: _Step) -> None:
        super().__init__(step)
        self.step = step


class _Recorded(Folders):
    """Answers as before. ``name``: of the driver."""

    def __init__(self, name: str, answers: tuple[Any, ...]) -> None:
        self._name = name
        self._answers = iter(answers)
        self._paths = 0

    def _ask(self, *step: Any) -> Any:
        for answer in self._answers:
            if isinstance(answer, OSError):
                raise answer
            return answer
        raise _AsksError(step)

    def exists(self, path: str) -> bool:
        return bool(self._ask("exists", path))

    def is_empty(self, path: str) -> bool:
        return bool(self._ask("is_empty", path))

    def names(self, prefix: str) -> list[str]:
        return list(self._ask("names", prefix))

    def unique(self, prefix: str) -> str:
        self._paths += 1
        return f"{prefix}{self._name}{self._paths}"

    def delete(self, path: str) -> None:
        while self._ask("delete", path):  # file by file
            pass

    def rename(self, path: str, to: str) -> None:
        self._ask("rename", path, to)

    def write(self, path: str, text: bytes) -> None:
        self._ask("write", path, text.decode())

    def read(self, path: str) -> str:
        return str(self._ask("read", path))


def _within(files: Files, path: str) -> list[str]:
    return sorted(each for each in files if f"{each}/".startswith(f"{path}/"))


def _answer(files: dict[str, str], step: _Step, *, is_nesting: bool) -> Any:
    """Change the files, and return the answer of a file system.

    ``is_nesting``: it moves a folder into the one that has its new name, and else refuses.
    """
    kind, path, *others = step
    found = _within(files, path)
    match kind:
        case "exists":
            return bool(found)
        case "is_empty":
            return not any(files[each] for each in found)
        case "names":
            names = {each[len(path) :].split("/")[0] for each in files if each.startswith(path)}
            return tuple(path + each for each in sorted(names) if each)
        case "delete":
            if found:
                del files[found[0]]
            return len(found) > 1
        case "write":
            files[path] = others[0]
        case "read":
            return files[path] if path in files else FileNotFoundError(path)
        case "rename":
            [to] = others
            if _within(files, to):
                to = f"{to}/{path.rsplit('/', 1)[1]}"
                if not is_nesting or _within(files, to):
                    return FileExistsError(to)
            if not found:
                return FileNotFoundError(path)
            for each in found:
                files[to + each[len(path) :]] = files.pop(each)
    return None


def orders(
    start: Files, drivers: Sequence[Driver], *, is_nesting: bool, changes: int
) -> Iterator[tuple[Files, list[str | None]]]:
    """Yield each state after a step: the files, and what each driver has returned.

    The first driver begins. ``changes``: how often another one goes on, at most.
    """

    @cache
    def asked(driver: int, answers: tuple[Any, ...]) -> _Step | str:
        try:
            return drivers[driver](_Recorded(f"{driver}x", answers))
        except _AsksError as asks:
            return asks.step

    # Of each driver: its answers by their number, and the number of answers with one more.
    known: list[list[tuple[Any, ...]]] = [[()] for _ in drivers]
    nexts: list[dict[tuple[int, str], int]] = [{} for _ in drivers]
    begin = (frozenset(start.items()), (0,) * len(drivers), 0, changes)
    waiting, seen = [begin], {begin}
    while waiting:
        present, places, last, left = waiting.pop()
        for driver, place in enumerate(places):
            step = asked(driver, known[driver][place])
            now_left = left - (driver != last)
            if isinstance(step, str) or now_left < 0:
                continue
            files = dict(present)
            answer = _answer(files, step, is_nesting=is_nesting)
            number = nexts[driver].setdefault((place, repr(answer)), len(known[driver]))
            if number == len(known[driver]):
                known[driver].append((*known[driver][place], answer))
            moved = (*places[:driver], number, *places[driver + 1 :])
            state = (frozenset(files.items()), moved, driver, now_left)
            if state not in seen:
                seen.add(state)
                waiting.append(state)
                found = [asked(each, known[each][at]) for each, at in enumerate(moved)]
                yield files, [each if isinstance(each, str) else None for each in found]
