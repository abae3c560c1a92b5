"""Limits on what a worker may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Caps:
    """Limits on what a worker may use. Exceeding one ends the worker, with the reason."""

    #: bytes of one control message
    message: int = 256 * 1024
    #: bytes of stdout and stderr together that are stored
    log: int = 256 * 1024
    #: bytes written to stdout and stderr before the worker is ended
    printed: int = 64 * MIB
    #: resident bytes: this plus ``memory_factor`` times the bytes of inputs and outputs
    memory: int = 4096 * MIB
    memory_factor: int = 8
    processes: int = 64
    #: threads of all its processes together: a constant, and a number for each core
    threads: int = 64
    core_threads: int = 4
    #: processes and threads of one user, where the system counts them for this user only
    tasks: int = 4096
    #: open files of one process; four times as many where a GPU driver is used
    descriptors: int = 1024
    file_bytes: int = 2048 * MIB
    #: bytes and number of files in the scratch folder, including open unnamed files
    disk: int = 4096 * MIB
    files: int = 20_000
    #: bytes of a worker's own /dev/shm
    shared_memory: int = 256 * MIB
    outputs: int = 16
    rank: int = 12
    #: poisoned bytes on both sides of each input, and of each output of an untimed call
    guard: int = 256 * 1024
    output_guard: int = 1 * MIB
    #: elements of one tensor, and of the programs of all calls, under an interpreter
    interpreter_elements: int = 1_000_000
    interpreter_dim: int = 128


CAPS = Caps()
