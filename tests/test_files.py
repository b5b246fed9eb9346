from __future__ import annotations

import ast
import io
import itertools
import json
import os
import stat
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import occamrl as orl
from occamrl import files
from occamrl.errors import CheckpointError, InvalidInput, OccamRLError, RecordError, StorageError
from occamrl.experiments.execution import Experiment, play_cell
from occamrl.experiments.records import Folder, locked, network_file_system
from occamrl.files import Entry, make_folder, write_whole
from occamrl.running.storage import FORMAT, load, read_document, sha256, write_sealed

PROBLEM = orl.make_problem("river-swim", states=3)
SOURCE = Path(files.__file__).parent


def small_experiment() -> Experiment:
    return Experiment(
        name="small", episodes=20, seeds=1, problem=["RiverSwim"], agent=["UniformRandom"]
    )


# Power cuts ---------------------------------------------------------------------------------------


@dataclass
class Disk:
    """What was asked of a disk while something was written in one folder.

    Until a file is synced, any beginning of its content may be on the disk; until a folder is
    synced, any of the changes of its names.
    """

    folder: Path
    syncs_files: bool = True
    calls: list[tuple[str, ...]] = field(default_factory=list)
    synced: dict[str, bytes] = field(default_factory=dict)  # content by first name
    written: dict[str, bytes] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        real = {
            name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink", "fdopen")
        }

        def open_file(path: Any, flags: int, *options: Any, **named: Any) -> int:
            handle: int = real["open"](path, flags, *options, **named)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                self._names[handle] = str(path)
                self.calls.append(("create", str(path)))
            elif stat.S_ISDIR(os.fstat(handle).st_mode):
                self._names[handle] = ""
            return handle

        def fsync(handle: int) -> None:
            real["fsync"](handle)
            name = self._names[handle]
            if name and self.syncs_files:
                self.synced[name] = self.content(handle)
                self.calls.append(("sync", name))
            elif not name:
                self.calls.append(("sync names",))

        def replace(source: Any, target: Any, **named: Any) -> None:
            real["replace"](source, target, **named)
            self.calls.append(("rename", str(source), str(target)))
            self.written[str(source)] = (self.folder / str(target)).read_bytes()

        def unlink(path: Any, **named: Any) -> None:
            real["unlink"](path, **named)
            self.calls.append(("remove", str(path)))

        with (
            mock.patch.object(os, "open", open_file),
            mock.patch.object(os, "fsync", fsync),
            mock.patch.object(os, "replace", replace),
            mock.patch.object(os, "unlink", unlink),
        ):
            yield

    @staticmethod
    def content(handle: int) -> bytes:
        with open(f"/proc/self/fd/{handle}", "rb") as file:  # noqa: PTH123  # by its descriptor
            return file.read()

    def states(self, before: dict[str, bytes]) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Yield what may be on the disk if the power goes after some of the calls."""
        for done in range(len(self.calls) + 1):
            calls = self.calls[:done]
            last = max((i for i, call in enumerate(calls) if call[0] == "sync names"), default=-1)
            pending = [i for i in range(last + 1, done) if calls[i][0] in ("rename", "remove")]
            created = [call[1] for call in calls if call[0] == "create"]
            torn = [name for name in created if ("sync", name) not in calls]
            for kept in itertools.product((False, True), repeat=len(pending)):
                lost = {i for i, keep in zip(pending, kept, strict=True) if not keep}
                for cut in (0.0, 0.5, 1.0):
                    yield done, self._after(before, calls, lost, torn, cut)

    def _after(
        self,
        before: dict[str, bytes],
        calls: list[tuple[str, ...]],
        lost: set[int],
        torn: list[str],
        cut: float,
    ) -> dict[str, bytes]:
        names = dict(before)
        for i, call in enumerate(calls):
            if i in lost:
                continue
            if call[0] == "create":
                whole = self.written.get(call[1], self.synced.get(call[1], b""))
                length = int(cut * len(whole)) if call[1] in torn else len(whole)
                names[call[1]] = whole[:length]
            elif call[0] == "rename" and call[1] in names:
                names[call[2]] = names.pop(call[1])
            elif call[0] == "remove":
                names.pop(call[1], None)
        return names


def write_text(folder: Path, content: int) -> Path:
    write_whole(folder / "text", bytes([content]) * 1_000)
    return folder / "text"


def write_result(folder: Path, content: int) -> Path:
    orl.run(orl.UniformRandom(), PROBLEM, episodes=content).save(folder / "run.npz")
    return folder / "run.npz"


def write_agent(folder: Path, content: int) -> Path:
    agent = orl.Agent(orl.UniformRandom(), known=PROBLEM.mdp.known, seed=content)
    agent.save(folder / "agent.npz")
    return folder / "agent.npz"


def write_experiment(folder: Path, content: int) -> Path:
    write_sealed(Entry.inside(folder / "experiment.json"), {"name": "x" * content})
    return folder / "experiment.json"


WRITERS = [write_text, write_result, write_agent, write_experiment]


def survives(
    writer: Callable[[Path, int], Path], folder: Path, *, syncs_files: bool = True
) -> bool:
    """Say whether the old file or the new one survives every power cut; the new one, once done."""
    target = writer(folder, 8)
    old = target.read_bytes()
    disk = Disk(folder, syncs_files)
    with disk.recorded():
        writer(folder, 9)
    new = target.read_bytes()
    assert old != new
    ended = len(disk.calls)
    for done, names in disk.states({target.name: old}):
        allowed = (new,) if done == ended else (old, new)
        if names.get(target.name) not in allowed:
            return False
    return True


@pytest.mark.parametrize("writer", WRITERS)
def test_a_power_cut_leaves_the_old_file_or_the_new_one(
    writer: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    assert survives(writer, tmp_path)


def test_without_syncing_a_power_cut_loses_files(tmp_path: Path) -> None:
    with mock.patch.object(files, "sync", return_value=None):
        assert not survives(write_text, tmp_path)
    assert not survives(write_text, tmp_path, syncs_files=False)


def test_one_file_writes_all_others() -> None:
    writing = {"write_text", "write_bytes", "rename", "unlink", "mkdir", "rmdir"}
    for path in SOURCE.rglob("*.py"):
        if path.name == "files.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            assert node.func.attr not in writing, f"{path}:{node.lineno}"
            if node.func.attr == "open":
                modes = [part.value for part in node.args if isinstance(part, ast.Constant)]
                assert not {"w", "wb", "a", "x", "xb"}.intersection(modes), f"{path}:{node.lineno}"


def test_what_a_killed_writer_left_is_no_damage_and_goes_with_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    small_experiment().run(folder, workers=1, progress=False)
    left_behind = [folder / ".experiment.json.12-ab.partial", folder / "cells/.x.json.1-a.partial"]
    for path in left_behind:
        path.write_text("half")
    assert orl.Experiment.verify(folder) == []
    assert orl.Experiment.verify(folder, quarantine=True) == []
    orl.Experiment.resume(folder, workers=1, progress=False)
    assert not any(path.exists() for path in left_behind)


# Folders of others --------------------------------------------------------------------------------


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_by(path: Path, kind: str, outside: Path) -> None:
    """Put a link or a pipe where a file or folder of an experiment was."""
    if path.is_dir():
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "hard link":
        os.link(outside / "precious.json", path)
    elif kind == "dangling link":
        path.symlink_to(outside / "made-by-an-attack")
    elif path.name in FOLDERS:
        path.symlink_to(outside, target_is_directory=True)
    else:
        path.symlink_to(outside / "precious.json")


FOLDERS = ("cells", "quarantine")
ATTACKED = ["lock", ".lock", "cells", "quarantine", "experiment.json", "record", "checkpoint"]


ATTACKS = [
    *itertools.product(ATTACKED, ("link", "dangling link", "pipe")),
    # Folders have no hard links.
    *itertools.product([name for name in ATTACKED if name not in FOLDERS], ["hard link"]),
]


@pytest.mark.parametrize(("attacked", "kind"), ATTACKS)
def test_nothing_outside_a_folder_is_touched(attacked: str, kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.json").write_text("precious")
    before = content_of(outside)
    folder = tmp_path / "folder"
    experiment = small_experiment()
    experiment.run(folder, workers=1, progress=False)
    cell = experiment.cells[0]
    record = folder / "cells" / f"{cell.id}.json"
    names = {"record": record, "checkpoint": record.with_suffix(".npz")}
    if attacked in ("quarantine", "checkpoint"):
        record.write_text("damaged")  # so that it is needed
        if attacked == "checkpoint":
            record.unlink()
    replace_by(names.get(attacked, folder / attacked), kind, outside)
    uses: list[Callable[[], object]] = [
        lambda: orl.Experiment.verify(folder),
        lambda: orl.Experiment.verify(folder, quarantine=True),
        lambda: orl.load(folder),
        lambda: orl.Experiment.resume(folder, workers=1, progress=False),
        lambda: play_cell(str(folder), asdict(cell), 0.0),
    ]
    refused = []
    for use in uses:
        try:
            use()
        except OccamRLError as error:
            refused.append(str(error))
        assert content_of(outside) == before
    # A hard link is a regular file: it is replaced, never written through.
    if kind != "hard link" and attacked not in ("record", "checkpoint"):
        assert any(attacked in text for text in refused)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "results"
    make_folder(real)
    linked = tmp_path / "results"
    linked.symlink_to(real, target_is_directory=True)
    small_experiment().run(linked, workers=1, progress=False)
    assert len(orl.load(linked).cells) == 1
    assert (real / "experiment.json").exists()


@pytest.mark.parametrize("special", ["pipe", "/dev/zero", "folder"])
def test_special_files_are_refused_at_once(special: str, tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    if special == "pipe":
        os.mkfifo(path)
    elif special == "folder":
        path.mkdir()
    else:
        path.symlink_to(special)
    readers: list[Callable[[Path], object]] = [
        orl.Result.load,
        orl.read_log,
        orl.read_ladder,
        Experiment.from_toml,
        lambda given: orl.Agent.load(given, orl.UniformRandom()),
    ]
    for reader in readers:
        with pytest.raises(OccamRLError, match="given"):
            reader(path)


def test_network_file_systems_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_file_system(tmp_path) == ""
    text = f"a:/b / ext4 rw 0 0\nhost:/export {tmp_path.resolve()} nfs4 rw 0 0\n"
    real_read = Path.read_text

    def read_text(path: Path, *options: Any, **named: Any) -> str:
        return text if path.name == "mounts" else real_read(path, *options, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert network_file_system(tmp_path / "deep") == "nfs4"
    with pytest.warns(RuntimeWarning, match="network file system"), locked(tmp_path):
        pass


# Bombs --------------------------------------------------------------------------------------------


def sealed(content: bytes) -> bytes:
    body = content[:-2] + (64).to_bytes(2, "little")
    return body + sha256(body).encode()


def archive_of(compression: int, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return sealed(buffer.getvalue())


def array_file(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def document_file(text: str) -> bytes:
    return array_file(np.frombuffer(text.encode(), np.uint8))


def larger_than_said(shape: str) -> bytes:
    content = array_file(np.zeros(10**4))
    return content.replace(b"(10000,)", shape.encode().ljust(8))


GOOD = json.dumps({"format": FORMAT})
BOMBS = {
    "zeros compressed": archive_of(
        zipfile.ZIP_DEFLATED, document=document_file(GOOD), a0=array_file(np.zeros(10**7))
    ),
    "a shape of 10^12": archive_of(
        zipfile.ZIP_STORED, document=document_file(GOOD), a0=larger_than_said("(10**9,)")
    ),
    "more than it has": archive_of(
        zipfile.ZIP_STORED, document=document_file(GOOD), a0=larger_than_said("(99999,)")
    ),
    "lists in lists": archive_of(
        zipfile.ZIP_STORED, document=document_file("[" * 500_000 + "]" * 500_000)
    ),
    "a tree that is deep": archive_of(
        zipfile.ZIP_STORED,
        document=document_file(
            f'{{"format": {FORMAT}, "identity": {{}}, "agent": null, "objects": [], '
            f'"blocks": null, "result": {"[" * 900}{"]" * 900}}}'
        ),
    ),
    "the same name twice": archive_of(zipfile.ZIP_STORED, document=document_file(GOOD)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_takes_no_more_memory_than_it_has_bytes(bomb: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    path.write_bytes(BOMBS[bomb])
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"agent\.npz"):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_a_spec_is_counted_before_it_is_expanded(tmp_path: Path) -> None:
    many = {f"p{i}": list(range(100)) for i in range(6)}
    with pytest.raises(InvalidInput, match="sweep"):
        Experiment(
            name="large",
            episodes=1,
            seeds=1,
            problem=["RiverSwim"],
            agent=[{"name": "PSRL", "sweep": many}],
        )
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(InvalidInput, match="deep"):
        Experiment.from_toml(path)
    with pytest.raises(InvalidInput, match="deep"):
        orl.read_ladder(path)


def test_a_record_in_the_place_of_an_experiment_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    small_experiment().run(folder, workers=1, progress=False)
    record = next((folder / "cells").glob("*.json"))
    (folder / "experiment.json").write_bytes(record.read_bytes())
    for use in (orl.load, orl.Experiment.verify, orl.Experiment.resume):
        with pytest.raises(RecordError, match=r"experiment\.json"):
            use(folder)


def test_another_kind_of_machine_goes_on_under_a_flag_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    small_experiment().run(folder, workers=1, progress=False)
    record = next((folder / "cells").glob("*.json"))
    record.unlink()
    elsewhere = {"processor": "another", "linear algebra": "another"}
    monkeypatch.setattr("occamrl.experiments.execution.machine", lambda: elsewhere)
    with pytest.raises(RecordError, match="other-machine"):
        Experiment.resume(folder, workers=1, progress=False)
    records = Experiment.resume(folder, workers=1, progress=False, other_machine=True)
    assert records.cells[0]["versions"]["processor"] == "another"
    # It stays the folder of the kind of machine that began it.
    with pytest.raises(RecordError, match="other-machine"):
        Experiment.resume(folder, workers=1, progress=False)


def test_documents_come_back_whatever_their_arrays(tmp_path: Path) -> None:
    entry = Entry.of(tmp_path / "file.npz")
    arrays = {
        "a0": np.arange(6.0).reshape(2, 3),
        "a1": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "a2": np.array("text"),
        "a3": np.zeros((0, 4), bool),
        "a4": np.array([b"x", b"yz"]),
    }
    from occamrl.running.storage import write_document

    write_document(entry, {"x": 1}, arrays)
    document, read = read_document(entry)
    assert document == {"format": FORMAT, "x": 1}
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_an_entry_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StorageError, match="below"):
        write_whole(tmp_path / "file" / "below", b"")
    with pytest.raises(StorageError):
        make_folder(tmp_path / "file" / "below")
    assert Folder(tmp_path).experiment_file.exists() is False


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_never_takes_the_place_of_a_pipe(linked: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    target = pipe
    if linked:
        target = tmp_path / "link"
        target.symlink_to(pipe)
    with pytest.raises(StorageError, match="pipe"):
        write_whole(target, b"content")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
