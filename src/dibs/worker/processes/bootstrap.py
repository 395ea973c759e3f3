"""The first file that a child process runs: takes its worker's import path, then becomes the child.

    python -P bootstrap.py FD     FD is the child's end of the socket to its worker
    first on the socket           four bytes of length, then sys.path as JSON

It imports nothing of dibs before it has that path: dibs itself may only be found by it.
"""

import json
import socket
import sys


def start(fd: int) -> None:
    line = socket.socket(fileno=fd)
    # Whatever the handler starts must not hold the line open.
    line.set_inheritable(False)
    length = int.from_bytes(_exactly(line, 4), "big")
    sys.path[:] = json.loads(_exactly(line, length))
    from dibs.worker.processes.child import main

    main(line)


def _exactly(line: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        more = line.recv(count - len(received))
        if not more:
            sys.exit("the worker went away")
        received += more
    return received


if __name__ == "__main__":
    start(int(sys.argv[1]))
