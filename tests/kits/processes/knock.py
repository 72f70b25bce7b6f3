"""A command of a shell that runs a Python program as a fork: see ``commands.py``.

``python -I -S knock.py DOOR ARGUMENT…`` runs ``python ARGUMENT…``. It imports little, because it
starts often.
"""

import marshal
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    door, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{door}")
        request = marshal.dumps((arguments, os.getcwd(), dict(os.environ)))
        # A signal that comes when the program runs, and before the handlers are there, waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        socket.send_fds(connection, [request], [0, 1, 2])
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: connection.send(b"%d" % number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        answer = connection.recv(100)
    if not answer:  # this program cannot be forked
        os.execv(sys.executable, [sys.executable, *arguments])
    code = int(answer)
    if code < 0:
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
