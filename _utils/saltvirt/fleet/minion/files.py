"""Read the master's files in chunks, so that an interrupted copy can be continued."""

from __future__ import annotations

from typing import Any

import salt.exceptions
import salt.fileclient
import salt.utils.url

from saltvirt import errors


class Chunks:
    """Reader of the master's files by offset. opts: the minion's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._opts = opts
        self._client: Any = None

    def _send(self, load: dict[str, Any]) -> Any:
        if self._client is None:
            self._client = salt.fileclient.get_file_client(self._opts)
        return self._client.channel.send(load, raw=True)

    def read(self, source: str, saltenv: str, offset: int) -> bytes:
        """The next chunk of a file, as bytes; empty at its end.

        Raises ImageError if the master does not answer.
        """
        path, url_saltenv = salt.utils.url.split_env(source)
        path = salt.utils.url.parse(path)[0]
        load = {
            "cmd": "_serve_file",
            "path": path,
            "saltenv": url_saltenv or saltenv,
            "loc": offset,
        }
        try:
            answer = self._send(load)
        except (salt.exceptions.SaltException, OSError) as exc:
            self._client = None
            raise errors.ImageError(f"the master does not serve {source}: {exc}") from exc
        reply = answer if isinstance(answer, dict) else {}
        data, dest = (reply.get(key, reply.get(key.encode())) for key in ("data", "dest"))
        if not data and not dest:  # also an answer at the end of a file names the file
            raise errors.ImageError(f"the master does not serve {source} now: see its log")
        return data.encode() if isinstance(data, str) else data or b""
