"""Standard input is copied to a file, and a signal ends the copy whenever it arrives."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType

import pytest

from oplog_sync.dump.stdin import spool
from tests.kits.agents.agent import DEADLINE
from tests.kits.contract.wire import wait_until


class _Stopped(Exception):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"", ".jsonl"),
        (b"{}", ".jsonl"),
        (b"\x28\xb5\x2f\xfd..", ".jsonl.zst"),
        (b"BZh", ".jsonl.bz2"),
    ],
)
def test_the_copy_has_all_bytes_and_the_name_of_their_format(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    reader, writer = os.pipe()

    def write() -> None:
        for byte in content:
            os.write(writer, bytes([byte]))
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reader, "rb") as source:
        copy = spool(source, tmp_path)
    thread.join()
    assert copy.endswith(suffix)
    assert Path(copy).read_bytes() == content
    assert signal.set_wakeup_fd(-1) == -1, "the signals still go to the copy"


def test_a_signal_ends_the_copy_although_it_interrupts_no_call(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    is_over, ended = threading.Event(), list[bool]()

    def stop() -> None:
        wait_until(lambda: any(tmp_path.iterdir()))
        # Handled in this thread, it does not interrupt the call in which the copy waits, as if it
        # had arrived just before.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        ended.append(is_over.wait(DEADLINE))
        os.close(writer)

    os.write(writer, b"begun")
    before = signal.signal(signal.SIGUSR1, _stop)
    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with open(reader, "rb") as source, pytest.raises(_Stopped):
            spool(source, tmp_path)
    finally:
        is_over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert ended == [True], "the copy waited for the source"
