"""Warm processes that fork workers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from kernellab.content import module_command
from kernellab.errors import VerifierError
from kernellab.sandbox.environment import clean_environment
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.rules import DEADLINES

#: for the judge itself, like :func:`~kernellab.verifier.worker.appearance.keep_pages` in a worker
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(512 << 20), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}

#: a thread that waits for its team spins for about a millisecond, enough to be warm for the next call. By default it
#: spins for tens of milliseconds, and keeps the thread that it waits for off a shared core: a call of 1 ms takes 50
SPINNING = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}


#: reserved bytes of a process's initial environment, into which a worker writes its own (worker/appearance.py)
ROOM = {"ROOM": " " * 4096}
#: preloaded modules may ask whether there is a GPU (tvm_ffi does); if the driver were queried, no child could start
#: CUDA
ASKING = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class ForkServer:
    """One warm process for one environment."""

    def __init__(self, preload: Sequence[str], environment: Mapping[str, str], allocator: Path | None = None) -> None:
        """``allocator`` is loaded before the C library's; processes that workers start do not inherit it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = ours
        self.environment = clean_environment({**SPINNING, **ASKING, **environment})
        self.ready = False
        self.paused = False
        self.failed: dict[str, str] = {}
        self.imports = list(dict.fromkeys(("torch", *preload)))
        with theirs:
            self.process = subprocess.Popen(
                module_command("kernellab.verifier.judge.forkserver", str(theirs.fileno()), "torch", *preload),
                env={**self.environment, **ROOM, **({"LD_PRELOAD": str(allocator)} if allocator else {})},
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Send a request and return its answer. Raises VerifierError."""
        self.wait_ready()
        self.resume()
        wire.post(self.channel, message, fds)
        return self._answer(DEADLINES.start)

    def wait_ready(self) -> None:
        """Wait until it has imported everything. Raises VerifierError."""
        if not self.ready:
            self.failed = self._answer(4 * DEADLINES.start).get("failed", {})
            self.ready = True

    def is_ready(self) -> bool:
        """Has it finished its imports? Does not wait."""
        if not self.ready and wait([self.channel], 0):
            self.wait_ready()
        return self.ready

    def pause(self) -> None:
        """Halt it until the next request or :meth:`resume`, so that it does not run during a timed call."""
        if not self.paused and self.ready and self.alive():
            self.process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.process.send_signal(signal.SIGCONT)
            self.paused = False

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()

    def _answer(self, seconds: float) -> dict[str, Any]:
        self.channel.settimeout(seconds)
        try:
            answer, _ = wire.take(self.channel)
        except TimeoutError:
            answer = None
        if answer is None:
            what = "The process that starts workers has ended or does not answer"
            if self.ready:
                raise VerifierError(f"{what}.", "Verify again: it is started again.")
            imports = ", ".join(self.imports)
            raise VerifierError(
                f"{what} while it imports {imports}.",
                f'Verify again. If that fails too, see why: env -i HOME=/tmp {sys.executable} -c "import {imports}".',
            )
        return answer
