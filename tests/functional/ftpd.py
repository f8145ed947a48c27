"""An FTP server of one folder with the commands that a download needs; it can interrupt a
transfer."""

import socket
import socketserver
import threading
import time


class Session(socketserver.StreamRequestHandler):
    """One control connection."""

    def say(self, text):
        self.wfile.write(f"{text}\r\n".encode())

    def handle(self):
        self.offset, self.data = 0, None
        self.say("220 ready")
        for line in self.rfile:
            verb, _, word = line.decode().strip().partition(" ")
            self.server.log.append((verb, word))
            answer = getattr(self, f"do_{verb.lower()}", None)
            if verb == "QUIT":
                return
            self.say("502 no such command") if answer is None else answer(word)

    def do_user(self, word):
        self.say("331 password" if word == self.server.user else "530 who?")

    def do_pass(self, word):
        self.say("230 in" if word == self.server.password else "530 no")

    def do_type(self, _word):
        self.say("200 binary")

    def path(self, word):
        found = self.server.folder / word.lstrip("/")
        if found.is_file():
            return found
        self.say("550 no such file")
        return None

    def do_size(self, word):
        if path := self.path(word):
            self.say(f"213 {path.stat().st_size}")

    def do_mdtm(self, word):
        if path := self.path(word):
            changed = time.gmtime(path.stat().st_mtime)
            self.say(time.strftime("213 %Y%m%d%H%M%S", changed))

    def listen(self):
        self.data = socket.create_server(("127.0.0.1", 0))
        return self.data.getsockname()[1]

    def do_pasv(self, _word):
        port = self.listen()
        self.say(f"227 passive (127,0,0,1,{port // 256},{port % 256})")

    def do_epsv(self, _word):
        self.say(f"229 passive (|||{self.listen()}|)")

    def do_rest(self, word):
        self.offset = int(word)
        self.say(f"350 from {word}")

    def do_retr(self, word):
        path = self.path(word)
        if path is None:
            return
        self.say("150 here it comes")
        link, _ = self.data.accept()
        cut, self.server.cut_after = self.server.cut_after, None
        with link, open(path, "rb") as file:
            file.seek(self.offset)
            link.sendall(file.read() if cut is None else file.read(cut))
        self.data.close()
        self.offset = 0
        self.say("226 done")  # also when it was cut: the size tells


class Server(socketserver.ThreadingTCPServer):
    """``folder`` is served. ``cut_after``: bytes after which the next download breaks off.
    ``log``: (command, argument) of all that was asked."""

    daemon_threads = True

    def __init__(self, folder, user="anonymous", password=""):
        super().__init__(("127.0.0.1", 0), Session)
        self.folder, self.user, self.password = folder, user, password
        self.cut_after, self.log = None, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def stop(self):
        self.shutdown()
        self.server_close()
