"""The judge: its own process, started by exec with a clean environment, which owns inputs, references, clock, verdict.

``-m kernellab.verifier.judge.main FD [FOLDER]``; it answers each request on FD with progress messages and one verdict
or one error. It ends, with all its descendants and its FOLDER, when the other side closes FD.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

from kernellab.errors import KernellabError
from kernellab.records import Source, StageResult
from kernellab.sandbox import folders, sandbox
from kernellab.target import Backend
from kernellab.task import forget_modules, load_task
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.options import RankOptions, VerifyOptions
from kernellab.verifier.ranking.rank import Ranked
from kernellab.verifier.stages.context import Request, baselines_of, numbered, threads_of
from kernellab.verifier.stages.pipeline import Verification

#: imports of the stages of a first verification
_FIRST = (
    "torch", "kernellab.verifier.seal.sanitizer", "kernellab.verifier.seal.stage",
    "kernellab.verifier.stages.correct", "kernellab.verifier.stages.fast", "kernellab.verifier.stages.honest",
    "kernellab.verifier.stages.robust",
)  # fmt: skip

#: seconds without a request after which freed memory goes back to the machine
_QUIET = 1.0


def main() -> None:
    """Serve requests on the file descriptor given on the command line."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    sandbox.dumpable(False)
    # a worker of another user must be able to read files in its own folder
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pool = Pool()
    threading.Thread(target=_end_with_client, args=(channel, pool), daemon=True).start()
    try:
        serve(channel, pool)
    except BaseException:
        pool.close()
        raise
    _end(pool)


def serve(channel: socket.socket, pool: Pool) -> None:
    """Answer requests, one at a time, until the client closes the channel."""
    module_count = 0
    while True:
        try:
            message = wire.receive(channel)
            if message is None:
                return
            wire.send(channel, answer(message, channel, pool))
            if len(sys.modules) != module_count:
                # torch's objects stay: searching them for garbage takes 0.2 s, in the middle of a stage
                module_count = len(sys.modules)
                gc.collect()
                gc.freeze()
            if not select.select([channel], [], [], _QUIET)[0]:
                _give_back()
        except (BrokenPipeError, ConnectionResetError):
            return


def _give_back() -> None:
    """Free the memory that the allocator keeps (:data:`~kernellab.verifier.judge.servers.ALLOCATOR`)."""
    with contextlib.suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def answer(message: dict[str, Any], channel: socket.socket, pool: Pool) -> dict[str, Any]:
    """The reply to one request; errors become messages."""
    try:
        if message["op"] == "warm":
            backend = Backend(message["backend"])
            server = pool.server(message["dsl"], backend)
            if message["compiles"]:
                pool.server(message["dsl"], backend, compiles=True)
            _import()  # meanwhile the fork server does its own imports
            if message["ahead"]:
                return {"warm": True}
            if backend is Backend.CUDA:
                from kernellab.verifier.cases import device

                device.start_cuda()
            server.wait_ready()
            return {"warm": True}
        if message["op"] == "release":
            release(pool)
            return {"released": True}
        if message["op"] == "prepare":
            return {"prepared": prepare(message, pool)}

        def progress(result: StageResult) -> None:
            wire.send(channel, {"progress": result.model_dump(mode="json")})

        ranks, options = message["op"] == "rank", message["options"]
        parsed_options = (
            RankOptions.model_validate(options).as_verification() if ranks else VerifyOptions.model_validate(options)
        )
        request = requested(message, parsed_options)
        pool.end_idle(request.source.dsl, request.backend)
        if parsed_options.longest:  # a machine with little memory
            pool.end_others(load_task(message["task"], message["name"]))
        if ranks:
            return {"ranking": Ranked(request, pool, progress).run().model_dump(mode="json")}
        verdict = Verification(request, pool, progress).run()
        if parsed_options.longest:
            _give_back()
        return {"verdict": verdict.model_dump(mode="json")}
    except KernellabError as error:
        return {"error": type(error).__name__, "message": error.message, "remedy": error.remedy}
    except BrokenPipeError:
        raise
    except Exception as error:
        return {
            "error": "VerifierError",
            "message": f"The judge failed: {type(error).__name__}: {error}.",
            "remedy": "This is a fault of the verifier, not of the kernel.",
            "trace": traceback.format_exc(),
        }


def _import() -> None:
    """Import what a first verification needs, and store its bytecode if the installation has none."""
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()  # imports leave no garbage, and searching them for some takes a sixth of their time
    try:
        for name in _FIRST:
            import_module(name)
    finally:
        gc.enable()
        sys.dont_write_bytecode = dont_write


def requested(message: dict[str, Any], options: VerifyOptions) -> Request:
    """The request that a message describes."""
    return Request(
        task_text=message["task"],
        task_name=message["name"],
        source=Source.model_validate(message["source"]),
        backend=Backend(message["backend"]),
        chip=message["chip"],
        options=options,
    )


def release(pool: Pool) -> None:
    """Free what is stored for the next candidate of a task, in memory and on the device."""
    pool.release()
    forget_modules()
    from kernellab.verifier.cases import device

    device.give_back()


def prepare(message: dict[str, Any], pool: Pool) -> bool:
    """Start the builds of the requested baselines. Returns whether all have finished."""
    task = load_task(message["task"], message["name"])
    options, backend = VerifyOptions.model_validate(message["options"]), Backend(message["backend"])
    workers = [
        pool.begin_baseline(message["dsl"], backend, name, task, threads_of(options), number)
        for name, number in numbered(baselines_of(options, task))
    ]
    return all(worker is not None and worker.built() for worker in workers)


def _end_with_client(channel: socket.socket, pool: Pool) -> None:
    """End this process at once when the client is gone."""
    poller = select.poll()
    poller.register(channel, select.POLLRDHUP | select.POLLHUP)
    poller.poll()
    _end(pool)


def _end(pool: Pool) -> None:
    """End the process; two threads may call this. The interpreter's own exit would print Triton's types."""
    pool.close()
    # a client that was killed does not remove it
    for folder in sys.argv[2:]:
        folders.clear(folder)
        sandbox.remove(folder)
    os._exit(0)


if __name__ == "__main__":
    main()
