"""Run a module on a small disk: ``python -m tests.kits.processes.inside PID FOLDER MODULE …``.

The namespaces are those of the process PID. A fork can enter them while it has one thread.
"""

import ctypes
import os
import runpy
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(pid: str, folder: str) -> None:
    # Without root only the namespace of users allows to enter the other.
    for name in (["user"] if os.geteuid() else []) + ["mnt"]:
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if _LIBC.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the {name} namespace of {pid}")
        os.close(descriptor)
    os.chdir(folder)


if __name__ == "__main__":
    _, pid, folder, module, *arguments = sys.argv
    enter(pid, folder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
