"""Capture a machine's traffic: its amount, and whether a pattern is readable."""

import contextlib
import subprocess

PATTERN = 0xA7
# runs in the machine until its input is closed; prints bytes seen, and 1 when it saw the pattern
LISTENER = """
import select, socket, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
heard.bind(("eth0", 0))
pattern, size, found = bytes([int(sys.argv[1])]) * 512, 0, False
print("listening", flush=True)
while True:
    ready, _, _ = select.select([heard, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    packet = heard.recv(70000)
    size += len(packet)
    found = found or pattern in packet
print(size, int(found), flush=True)
"""


class Heard:
    """What was heard, once the listening is over."""

    answer = None

    def bytes_seen(self):
        return int(self.answer[0])

    def pattern_seen(self):
        return self.answer[1] == "1"


@contextlib.contextmanager
def on(lab, host):
    """Listens on the host's wire for the block."""
    argv = lab.machine(host).argv(["/opt/salt/bin/python3", "-c", LISTENER, str(PATTERN)])
    heard = Heard()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **pipes) as child:
        assert child.stdout.readline() == "listening\n"
        yield heard
        child.stdin.close()
        heard.answer = child.stdout.read().split()
