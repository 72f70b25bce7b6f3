"""Objects with a state of their own in the child of a fork."""

import os
import weakref
from collections.abc import Callable
from typing import Any

_in_child: "weakref.WeakKeyDictionary[Any, Callable[[Any], None]]" = weakref.WeakKeyDictionary()


def after_fork(owner: Any, call: Callable[[Any], None]) -> None:
    """Call ``call(owner)`` in the child of each fork, as long as ``owner`` lives."""
    _in_child[owner] = call


class OfOneProcess:
    """An object for the process of its maker. ``refusal``: the reason in the child of a fork."""

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self._is_lost = False
        after_fork(self, OfOneProcess._lose)

    def _check_process(self) -> None:
        """Raise ValueError in the child of a fork."""
        if self._is_lost:
            raise ValueError(self._refusal)

    def _lose(self) -> None:
        self._is_lost = True


def _call_all() -> None:
    for owner, call in list(_in_child.items()):
        call(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_call_all)
