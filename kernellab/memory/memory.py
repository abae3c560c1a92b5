"""The memory of a workspace: entries are offered, found, learnt from use, judged by people, and forgotten.

Every change is an event in the workspace's journal first and in the store afterwards, so a lost store can be restored:
:meth:`Memory.rebuild` makes it from the journal. A forgotten entry stays forgotten until a person requests it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from kernellab.capture import capture
from kernellab.content import WORKSPACE
from kernellab.errors import KernellabError, MemoryStoreError
from kernellab.journal import JournalFile
from kernellab.memory.events import (
    EVENT,
    STREAM,
    Event,
    FailureRemembered,
    Forgotten,
    Judged,
    Log,
    Looked,
    Remembered,
    Seeded,
    SkillRemembered,
    Staled,
    Used,
    changed_by,
    id_of,
)
from kernellab.memory.features import Features, features
from kernellab.memory.layers import Layer, Layered, Shared, library_layer
from kernellab.memory.notes import edited
from kernellab.memory.records import Failure, Kernel, Purpose, Skill
from kernellab.memory.retrieval import Hit, Query, retrieve
from kernellab.memory.store import Row, Store
from kernellab.options.memory import memory_defaults
from kernellab.task import load_task

#: The folder of a workspace's store.
FOLDER = "memory"
#: Maximum number of stored kernels of one computation, DSL and chip: the fastest, and pinned or liked ones.
MOST_ALIKE = 8
#: Number of this process's writes between two checks whether the store's files need merging.
_TEND_AFTER = 32

#: Maps a task's text and name to its features at some sizes.
Look = Callable[[str, str, Mapping[str, int]], Features]


class Memory:
    """One workspace's memory; see :meth:`open`. Several processes may use it at once.

    Raises:
        MemoryStoreError: the store cannot be opened; the journal still contains all entries.
    """

    def __init__(
        self, store: Store | str, log: Log, look: Look | None = None, layers: Sequence[Layer] = ()
    ) -> None:  # fmt: skip
        """``store`` is the own store, or its place: then it is made when something is remembered."""
        self._store = Store(store) if isinstance(store, str) and _exists(store) else store
        self._layers = layers
        #: Why layers are not used, in a sentence each.
        self.faults: list[str] = []
        self._log = log
        self._look = look or features_of
        self._gone: set[str] = set()
        self._read_to = 0
        self._writes = 0

    @classmethod
    def open(cls, workspace: Path, uri: str = "") -> Memory:
        """Open the memory of ``workspace``: in its ``.kernellab/memory``, or at ``uri`` (``s3://``, ``db://``).

        Searches also read the stores of ``[memory] layers`` and, while the own store is empty, the library that the
        package ships.
        """
        shared = [Shared(layer) for layer in memory_defaults(workspace).layers]
        return cls(uri or str(place_of(workspace)), JournalFile(workspace), None, shared)

    @classmethod
    def open_existing(cls, workspace: Path, uri: str = "") -> Memory | None:
        """Open the memory if it exists, or a team's layer is configured; None otherwise."""
        is_configured = uri or place_of(workspace).is_dir() or memory_defaults(workspace).layers
        return cls.open(workspace, uri) if is_configured else None

    @property
    def store(self) -> Store:
        """The own store, made if necessary. Raises MemoryStoreError if it cannot be made."""
        if isinstance(self._store, str):
            self._store = Store(self._store)
        return self._store

    @property
    def own(self) -> Store | None:
        """The own store if it exists; readers do not make one. Raises MemoryStoreError if it cannot be opened."""
        return None if isinstance(self._store, str) and not _exists(self._store) else self.store

    @property
    def layered(self) -> Layered:
        """The own store and the layers below it, for reading."""
        own_store = self.own
        library = () if own_store is not None and own_store.count()["kernels"] else (library_layer(),)
        return Layered(own_store, [*self._layers, *library], self.forgotten(), self.faults)

    # -- writing

    def remember(self, kernel: Kernel, text: str, asked: bool = False) -> bool:
        """Store a verified kernel of the task ``text``. Return whether it was stored.

        A forgotten one is stored again only if a person ``asked`` for it, and one with unchanged figures is not stored.
        Of many with the same computation, DSL and chip the fastest are kept, and of near duplicates (one sketch, the
        same sizes) the fastest.
        """
        existing = self.store.get(kernel.id)
        if existing is not None and existing.kernel.measured == kernel.measured and not existing.kernel.stale:
            return False
        if (kernel.id in self.forgotten() and not asked) or not self._is_better(kernel):
            return False
        self._write([Remembered(kernel=kernel, text=text)])
        return True

    def remember_failure(self, failure: Failure) -> None:
        """Store a failure, with its fix if there is one."""
        self._write([FailureRemembered(failure=failure)])

    def propose(self, skill: Skill) -> bool:
        """Store a skill as a proposal. Return False if it is known or forgotten, or has no measured gain."""
        is_measured = skill.before and skill.after and skill.low > 1.0
        known_ids = {s.id for s in self.store.skills()} | self.forgotten()
        if not is_measured or skill.id in known_ids:
            return False
        self._write([SkillRemembered(skill=skill)])
        return True

    def skill(self, id: str) -> Skill:
        """Return a skill. Raises MemoryStoreError if there is none with that id."""
        quoted = id.replace("'", "''")
        matches = self.store.skills(f"id = '{quoted}'")
        if not matches:
            raise MemoryStoreError(f"The memory holds no skill {id!r}.", "`kernellab memory skills` lists them.")
        return matches[0]

    def approve(self, id: str, note: str = "") -> Skill:
        """Approve a skill for a person, with the changes in its Markdown ``note`` if one is given.

        Raises:
            MemoryStoreError: there is no such skill, or the note is missing a part or states an effect other than the
            measured.
        """
        proposal = self.skill(id)
        approved = edited(note, proposal, approve=True) if note else proposal.model_copy(update={"approved": True})
        self._write([SkillRemembered(skill=approved)])
        return approved

    def forget(self, *ids: str) -> int:
        """Remove entries from the store and all later prompts. Return their number."""
        forgotten_ids, layered, own_store = self.forgotten(), self.layered, self.own
        count = sum(i not in forgotten_ids and layered.get(i) is not None for i in ids)
        self._log.add(STREAM, [Forgotten(id=i).model_dump_json() for i in ids])
        return max(count, own_store.remove(ids) if own_store is not None else 0)

    def judge(
        self, id: str, thumb: int | None = None, pinned: bool | None = None, rationale: str | None = None
    ) -> Kernel:
        """Record a person's judgement of an entry. Raises MemoryStoreError if there is no such entry."""
        self._row(id)
        self._write([Judged(id=id, thumb=thumb, pinned=pinned, rationale=rationale)])
        return self._row(id).kernel

    # -- reading

    def search(self, query: Query, k: int = 3) -> list[Hit]:
        """Return the best ``k`` hits (:func:`kernellab.memory.retrieval.retrieve`)."""
        return retrieve(self.layered, query, k)

    def cures(self, dsl: str, signature: str, graph: str = "", k: int = 2) -> list[Failure]:
        """Return fixed failures like this one: those of the same computation first, then by speedup."""
        own_store = self.own
        failures = own_store.failures(_where(dsl=dsl, signature=signature)) if own_store is not None else []
        fixed_failures = [failure for failure in failures if failure.change]
        return sorted(fixed_failures, key=lambda f: (f.graph != graph, -(f.speedup or 0.0)))[:k]

    def used(self, ids: Iterable[str], purpose: Purpose, reward: float, by: str = "") -> None:
        """Record the ``reward`` (0 to 1) of entries that were in a brief. Each ``by`` counts once per entry."""
        counted = {(e.id, e.by) for e in self.events() if e.kind == "used" and e.by} if by else set()
        own_store = self.own
        present = [i for i in ids if (i, by) not in counted and own_store is not None and own_store.get(i) is not None]
        self._write([Used(id=i, purpose=purpose, reward=min(1.0, max(0.0, reward)), by=by) for i in present])

    def seed(self, rows: Iterable[Row], version: str) -> int:
        """Store the shipped library's ``rows``, except forgotten ones. Return the number of rows that are new or have
        changed figures."""
        self._log.add(STREAM, [Seeded(version=version).model_dump_json()])
        return self._seed(rows)

    def push(self, uri: str, ids: Collection[str] = ()) -> int:
        """Store kernels that were verified here, or those in ``ids``, at ``uri``, with tasks, notes and ratings. Return
        their number. Readers of that store verify them again.

        Raises:
            MemoryStoreError: that store cannot be written, or an entry does not belong to this workspace.
        """
        texts = {event.kernel.id: event.text for event in self.events() if event.kind == "remembered"}
        rows = [row for row in self.store.kernels() if row.kernel.id in (ids or texts)]
        if missing := sorted(set(ids) - {row.kernel.id for row in rows if row.kernel.id in texts}):
            raise MemoryStoreError(f"This workspace has verified no entry {missing[0]!r}.", "`kernellab memory stats`.")
        target = Store(uri)
        target.put([replace(r, kernel=r.kernel.model_copy(update={"text": texts[r.kernel.id]})) for r in rows])
        target.tend()
        return len(rows)

    def compact(self) -> None:
        """Merge the store's files, drop older versions, and make the indexes for a large store."""
        self.store.compact()
        self.store.index()

    def looked(self, source: str, why: str) -> None:
        """Record that an import judged the source of that hash; ``why``: why it was refused, "" if it was stored."""
        self._write([Looked(source=source, why=why)])

    def judged_before(self) -> dict[str, str]:
        """The imports' judgements so far: a source's hash and the reason of its refusal, "" if it was stored."""
        return {e.source: e.why for e in self.events() if e.kind == "looked"}

    def mark_stale(self, why: Callable[[Kernel], str]) -> int:
        """Update the stale mark of every kernel by ``why`` (empty: the figures apply). Return the number of changes."""
        changed = [
            (row.kernel.id, reason) for row in self.store.kernels() if (reason := why(row.kernel)) != row.kernel.stale
        ]
        self._write([Staled(id=i, why=reason) for i, reason in changed])
        return len(changed)

    # -- rebuilding

    def rebuild(self, tell: Callable[[str], None] = lambda _: None) -> int:
        """Make the store again from the journal. Return the number of its kernels.

        A task that can no longer be captured is omitted, and ``tell`` receives a sentence about it.
        """
        forgotten_ids = self.forgotten()
        self.store.clear()
        for event in self.events():
            try:
                self._apply([event] if id_of(event) not in forgotten_ids else [])
            except KernellabError as error:
                tell(f"{id_of(event)} is left out: {error.message}")
        self.store.tend()
        self.store.index()
        return self.store.count()["kernels"]

    def events(self) -> list[Event]:
        """All events, oldest first. Raises MemoryStoreError for a line of a newer kernellab."""
        try:
            return [EVENT.validate_json(line) for _, line in self._log.stream(STREAM)]
        except ValidationError as error:
            raise MemoryStoreError(
                f"The journal holds an event of the memory that this kernellab cannot read "
                f"({error.errors()[0]['msg']}).",
                "Upgrade kernellab, or use another workspace.",
            ) from None

    def forgotten(self) -> set[str]:
        """Ids of entries that were forgotten and not requested again."""
        for number, line in self._log.stream(STREAM, self._read_to):
            self._read_to = number
            if '"kind":"forgotten"' in line:
                self._gone.add(Forgotten.model_validate_json(line).id)
            elif self._gone and '"kind":"remembered"' in line:
                self._gone.discard(id_of(EVENT.validate_json(line)))
        return self._gone

    # -- internal

    def _write(self, events: list[Event]) -> None:
        if events:
            self._log.add(STREAM, [event.model_dump_json() for event in events])
            self._apply(events)
            if self._writes % _TEND_AFTER == 0:
                self.store.tend()
            self._writes += 1

    def _apply(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Remembered(kernel=kernel, text=text):
                    existing = self.store.get(kernel.id)
                    looked_up = self._look(text, kernel.name, kernel.sizes)
                    # use counts and people's ratings survive a new measurement
                    merged = kernel if existing is None else _with_values(kernel, existing.kernel)
                    self.store.put([Row(merged, looked_up.logic, looked_up.shape)])
                case FailureRemembered(failure=failure):
                    self.store.put_failures([failure])
                case SkillRemembered(skill=skill):
                    self.store.put_skills([skill])
                case Used() | Judged() | Staled():
                    row = self.store.get(event.id)
                    if row is not None:
                        self.store.put([replace(row, kernel=changed_by(event, row.kernel))])
                case Forgotten(id=gone):
                    self.store.remove([gone])
                case Seeded():
                    from kernellab.memory.library import shipped

                    self._seed(shipped())
                case Looked():
                    pass

    def _seed(self, rows: Iterable[Row]) -> int:
        """Store rows of the shipped library unless they are present with the same figures or measured on this machine;
        use counts and ratings are kept."""
        forgotten_ids, kernels = self.forgotten(), {row.kernel.id: row.kernel for row in self.store.kernels()}
        new_rows = []
        for row in rows:
            existing = kernels.get(row.kernel.id)
            is_own = existing is not None and existing.provenance.origin != row.kernel.provenance.origin
            if (
                row.kernel.id not in forgotten_ids
                and not is_own
                and (existing is None or existing.measured != row.kernel.measured)
            ):
                new_rows.append(row if existing is None else replace(row, kernel=_with_values(row.kernel, existing)))
        self.store.put(new_rows)
        return len(new_rows)

    def _is_better(self, kernel: Kernel) -> bool:
        """Whether it is new or among the fastest of its kind; may remove a slower one."""
        condition = _where(graph=kernel.graph, dsl=kernel.dsl, chip=kernel.chip)
        same_kind = [row.kernel for row in self.store.kernels(condition) if row.kernel.sizes == kernel.sizes]
        if any(k.id == kernel.id for k in same_kind):
            return True
        twins = [k for k in same_kind if kernel.sketch and k.sketch == kernel.sketch]
        if twins:
            return self._merged(kernel, twins)
        if len(same_kind) < MOST_ALIKE:
            return True
        removable = [k for k in same_kind if not k.pinned and k.thumb <= 0]
        slowest = min(removable, key=lambda k: k.measured.speedup or 0.0, default=None)
        if slowest is None or (kernel.measured.speedup or 0.0) <= (slowest.measured.speedup or 0.0):
            return False
        self.store.remove([slowest.id])
        return True

    def _merged(self, kernel: Kernel, twins: list[Kernel]) -> bool:
        """Of near duplicates (one sketch and size, with other values or another lowering), keep the fastest."""
        fastest = max(twins, key=lambda k: k.measured.speedup or 0.0)
        if (kernel.measured.speedup or 0.0) <= (fastest.measured.speedup or 0.0):
            return False
        self.store.remove([k.id for k in twins if not k.pinned and k.thumb <= 0])
        return True

    def _row(self, id: str) -> Row:
        row = self.store.get(id)
        if row is None:
            raise MemoryStoreError(f"The memory holds no entry {id!r}.", "`kernellab memory search` shows ids.")
        return row


def _exists(uri: str) -> bool:
    return "://" in uri or Path(uri).is_dir()


def place_of(workspace: Path) -> Path:
    """The place of a workspace's own store."""
    return workspace / WORKSPACE / FOLDER


def features_of(text: str, name: str, sizes: Mapping[str, int]) -> Features:
    """The features of a task's text. Raises TaskError, CaptureError."""
    task = load_task(text, name)
    return features(task, capture(task), sizes or None)


def _with_values(kernel: Kernel, held: Kernel) -> Kernel:
    return kernel.model_copy(
        update={"draft": held.draft, "refine": held.refine, "thumb": held.thumb, "pinned": held.pinned}
    )


def _where(**columns: str) -> str:
    return " AND ".join(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in columns.items() if value)


__all__ = ["Memory", "features_of", "place_of"]
