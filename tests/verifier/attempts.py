"""What a kernel might try against its judge, other workers and the machine: code that is run in a real worker.

Each attempt is the body of a function that returns what it gained, or raises what stopped it; ``stopped_by`` are the
parts of the sandbox of which one is enough to stop it. An attempt without ``stopped_by`` is allowed and does no harm, for
the reason that ``harmless`` gives. ``{name}`` stands for a fact of the machine that the test knows and a kernel could
guess.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    name: str
    code: str
    #: words of the level, any of which stops it; empty: it is harmless
    stopped_by: tuple[str, ...] = ()
    harmless: str = ""


_VM = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
held = ctypes.create_string_buffer(64)
def peek(pid):
    here, there = Span(ctypes.addressof(held), 64), Span({address}, 64)
    got = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if got <= 0: raise OSError(ctypes.get_errno(), "process_vm_readv")
    return got
"""
_ATTACH = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, {pid}, None, None): raise OSError(ctypes.get_errno(), "ptrace")
return "attached"
"""
_PROCESSES = ("pid", "landlock", "uid")
_FILES = ("landlock", "uid")

TABLE = (
    # -- other processes
    Attempt("read the judge's memory by file", "return open('/proc/{judge}/mem', 'rb').fileno()", _PROCESSES),
    Attempt("read the judge's memory by call", _VM.replace("{address}", "0x400000") + "return peek({judge})",
            ("seccomp", *_PROCESSES)),
    Attempt("read the fork server's memory", "return open('/proc/{server}/mem', 'rb').fileno()", _PROCESSES),
    Attempt("read another worker's memory", "return open('/proc/{other}/mem', 'rb').fileno()", _PROCESSES),
    Attempt("read the client's environment", "return open('/proc/{client}/environ', 'rb').read()", _PROCESSES),
    Attempt("look at the judge's open files", "import os\nreturn os.listdir('/proc/{judge}/fd')", _PROCESSES),
    Attempt("take a descriptor of the judge", "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "fd = os.pidfd_open({judge})\ngot = libc.syscall({pidfd_getfd}, fd, 3, 0)\n"
            "if got < 0: raise OSError(ctypes.get_errno(), 'pidfd_getfd')\nreturn got", ("seccomp", *_PROCESSES)),
    Attempt("attach to the judge", _ATTACH.replace("{pid}", "{judge}"), ("seccomp", *_PROCESSES)),
    Attempt("attach to its own first process", _ATTACH.replace("{pid}", "1"), ("seccomp", "uid")),
    Attempt("kill the judge", "import os\nos.kill({judge}, 0)\nreturn 'could signal'", _PROCESSES),
    Attempt("kill the fork server", "import os\nos.kill({server}, 0)\nreturn 'could signal'", _PROCESSES),
    Attempt("signal every process", "import os\nbefore = os.getpid()\nos.kill(-1, 0)\nreturn 'could signal'", _PROCESSES),
    Attempt("see who else runs", "import os\nfound = [p for p in os.listdir('/proc') if p.isdigit()]\n"
            "if len(found) < 8: raise PermissionError(1, str(found))\nreturn found", ("pid",)),
    Attempt("limit its first process", "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))\nreturn 'limited'",
            ("seccomp", "uid")),
    Attempt("bind its first process to a core", "import os\nos.sched_setaffinity(1, {min(os.sched_getaffinity(0))})\n"
            "return 'bound'", ("seccomp", "uid")),
    Attempt("raise its priority", "import os\nos.setpriority(os.PRIO_PROCESS, 0, -10)\nreturn 'raised'", ("seccomp",)),
    # -- files
    Attempt("read a user's file", "return open('{secret}').read()", _FILES),
    Attempt("read the user's configuration", "import os\nreturn os.listdir('{home}/.config')", _FILES),
    Attempt("list the home folder", "import os\nreturn os.listdir('{home}')", _FILES),
    Attempt("read another worker's scratch", "import os\nreturn os.listdir('{other_scratch}/src')", _FILES),
    Attempt("read password hashes", "return open('/etc/shadow').read()", _FILES),
    Attempt("list the folder of temporary files", "import os\nreturn os.listdir('{tmp}')", _FILES),
    Attempt("write beside the packages", "open('{packages}/planted.py', 'w')\nreturn 'planted'", _FILES),
    Attempt("change the verifier's source", "open('{source}/landlock.py', 'a')\nreturn 'open'", _FILES),
    Attempt("write into the user's caches",
            "import os\nos.makedirs('{home}/.cache/kernellab', exist_ok=True)\nopen('{home}/.cache/kernellab/planted', 'w')\n"
            "return 'planted'", _FILES),
    Attempt("write into /tmp", "open('/tmp/kernellab-planted', 'w')\nreturn 'planted'", ("landlock",)),
    Attempt("write into /dev/shm", "open('/dev/shm/kernellab-planted', 'w')\nreturn 'planted'", ("landlock", "mnt")),
    Attempt("read what others left in /dev/shm", "return open('{shm}').read()", ("landlock", "mnt", "uid")),
    Attempt("make a device", "import os, stat\nos.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))\nreturn 'made'",
            ("landlock", "uid", "rlimits")),
    Attempt("read the kernel's messages", "return open('/dev/kmsg').fileno()", _FILES),
    Attempt("open a raw disk", "return open('/dev/vda', 'rb').fileno()", _FILES),
    Attempt("change a setting of the kernel", "open('/proc/sys/kernel/core_pattern', 'w')\nreturn 'open'", _FILES),
    Attempt("link to a file and read it through scratch",
            "import os\nos.symlink('{secret}', 'link')\nreturn open('link').read()", _FILES),
    Attempt("hard-link a file into scratch", "import os\nos.link('{secret}', 'hard')\nreturn open('hard').read()", _FILES),
    Attempt("a set-uid copy of a shell", "import os, shutil, stat\nshutil.copy('/bin/sh', 'sh')\nos.chmod('sh', 0o4755)\n"
            "if not os.stat('sh').st_mode & stat.S_ISUID: raise PermissionError(1, 'chmod')\nreturn 'made'",
            harmless="the scratch folder is its owner's alone and is removed; the file's owner has no other rights"),
    # -- network
    Attempt("connect by TCP", "import socket\nsocket.create_connection(('127.0.0.1', {tcp}), 1)\nreturn 'connected'",
            ("seccomp", "net", "landlock")),
    Attempt("send by UDP", "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "s.sendto(b'x', ('127.0.0.1', {udp}))\ns.settimeout(1)\nreturn s.recv(9)", ("seccomp", "net")),
    Attempt("an abstract local socket", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{abstract}')\n"
            "return 'connected'", ("seccomp", "net", "landlock")),
    Attempt("a named local socket", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{path_socket}')\n"
            "return 'connected'", ("seccomp", "uid")),
    Attempt("see the interfaces", "import os\nfound = os.listdir('/sys/class/net')\nreturn found",
            harmless="names of interfaces; nothing can be sent by them"),
    # -- the kernel
    Attempt("new user namespace", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.unshare(0x10000000): raise OSError(ctypes.get_errno(), 'unshare')\nreturn 'entered'", ("seccomp",)),
    Attempt("clone into a new user namespace", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "got = libc.syscall({clone}, 0x10000011, 0, 0, 0, 0)\nif got < 0: raise OSError(ctypes.get_errno(), 'clone')\n"
            "if got == 0: libc._exit(0)\nreturn 'entered'", ("seccomp",)),
    Attempt("take /proc off", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.umount2(b'/proc', 2): raise OSError(ctypes.get_errno(), 'umount')\nreturn 'off'",
            ("seccomp", "landlock", "uid")),
    Attempt("io_uring", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.syscall({io_uring_setup}, 8, ctypes.create_string_buffer(120)) < 0: raise OSError(ctypes.get_errno(), 'io_uring')\n"
            "return 'made'", ("seccomp",)),
    Attempt("bpf", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.syscall({bpf}, 5, ctypes.create_string_buffer(120), 120) < 0: raise OSError(ctypes.get_errno(), 'bpf')\n"
            "return 'loaded'", ("seccomp", "uid")),
    Attempt("read the user's keys", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.syscall({keyctl}, 0, -3, 0) < 0: raise OSError(ctypes.get_errno(), 'keyctl')\nreturn 'keyring'",
            ("seccomp",)),
    Attempt("set the clock", "import time\ntime.clock_settime(time.CLOCK_REALTIME, time.time())\nreturn 'set'",
            ("seccomp", "uid")),
    # -- resources
    Attempt("open more files than it may", "import os\nheld = []\ntry:\n    while len(held) < 100000: held.append(os.dup(0))\n"
            "finally:\n    for fd in held: os.close(fd)\nreturn len(held)", ("rlimits",)),
    Attempt("a file over the size", "import os\nimport signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "os.truncate(os.open('big', os.O_CREAT | os.O_WRONLY), 1 << 40)\nreturn 'made'", ("rlimits",)),
    Attempt("memory outside its account (memfd)", "import os\nreturn os.memfd_create('hidden')", ("seccomp",)),
    Attempt("memory outside its account (System V)", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "if libc.shmget(0, 1 << 20, 0o1600) < 0: raise OSError(ctypes.get_errno(), 'shmget')\nreturn 'made'",
            ("seccomp",)),
    Attempt("a core dump", "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))\nreturn 'set'",
            ("rlimits",)),
    # -- what it inherits
    Attempt("see the seeds or the reference in its environment",
            "import os\nfound = [k for k in os.environ if any(w in k.upper() for w in ('SEED', 'KEY', 'TOKEN', 'SECRET'))]\n"
            "found += [k for k in open('/proc/self/environ', 'rb').read().split(b'\\0') if b'KERNELLAB_TEST_KEY' in k]\n"
            "if not found: raise PermissionError(1, 'nothing there')\nreturn found", ("rlimits", "process")),
    Attempt("find the reference in its memory",
            "import gc, torch\nfound = [o for o in gc.get_objects() if callable(o) and getattr(o, '__qualname__', '') == 'reference']\n"
            "if not found: raise PermissionError(1, 'nothing there')\nreturn found", ("rlimits", "process")),
    Attempt("read the verifier's source", "return len(open('{source}/landlock.py').read())",
            harmless="it is public, and holds no seed, no answer and no key"),
    Attempt("stat a user's file", "import os\nos.stat('{home}')\nreturn 'seen'",
            harmless="Landlock hides contents and listings, not that a path exists"),
)  # fmt: skip
