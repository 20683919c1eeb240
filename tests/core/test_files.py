"""Results appear whole or not at all, and nothing of the user's is lost."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roundoff.core import files
from roundoff.core.claims import ScratchFolder, staged_file
from roundoff.core.files import (
    check_output_directory,
    check_output_file,
    output_directory,
    read_small,
    reading,
    regular_file,
    write_text,
    writing,
)
from roundoff.errors import BadInput


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with output_directory(target, marker="m.json") as staged:
        (staged / "m.json").write_text("{}")
        assert not target.exists()
    assert names(target) == [".roundoff-files", "m.json"]
    assert names(target.parent) == ["out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_a_failure(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), output_directory(tmp_path / "out", marker="m.json") as staged:  # noqa: PT012
        (staged / "m.json").write_text("{}")
        raise error
    assert names(tmp_path) == []


def test_a_failed_replacement_keeps_the_old_result(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with output_directory(target, marker="m.json") as staged:
        (staged / "m.json").write_text("old")
    with pytest.raises(RuntimeError), output_directory(target, marker="m.json", force=True):
        raise RuntimeError
    assert (target / "m.json").read_text() == "old"
    with output_directory(target, marker="m.json", force=True) as staged:
        (staged / "m.json").write_text("new")
    assert (target / "m.json").read_text() == "new"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("force", "message"),
    [(False, "holds files that roundoff did not write"), (True, "holds files that roundoff did not write")],
)
def test_a_strangers_folder_is_never_replaced(tmp_path: Path, force: bool, message: str) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(BadInput, match=message), output_directory(tmp_path, marker="m.json", force=force):
        pass
    assert (tmp_path / "thesis.doc").read_text() == "years of work"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="exists and is a file"), output_directory(tmp_path / "out", marker="m"):
        pass


def test_a_folder_that_is_named_like_a_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    with pytest.raises(BadInput, match="named like a file") as refused, output_directory(place, marker="m"):
        pass
    assert str(refused.value.fix) == f"name a folder: -o {tmp_path / 'model'}"
    assert names(tmp_path) == []


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with output_directory(tmp_path / "out", marker="m") as staged:
        (staged / "m").write_text("")
    assert names(tmp_path) == ["out"]


def test_a_full_disk_is_said_and_cleaned_up(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="The disk is full"), output_directory(tmp_path / "out", marker="m"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_other_write_errors_name_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="could not be written: Read-only"), writing(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="could not be written"):
        write_text(tmp_path / "file" / "below.txt", "")


def test_text_replaces_text_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "one\r\n")
    write_text(tmp_path / "a" / "b.txt", "two\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"two\n"
    assert names(tmp_path / "a") == ["b.txt"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(), "The model x does not exist"),
        (PermissionError(), "The model x may not be read"),
        (OSError(errno.EIO, "Input/output error"), "The model x cannot be read: Input/output error"),
    ],
)
def test_read_errors_are_sentences(error: OSError, message: str) -> None:
    with pytest.raises(BadInput, match=message), reading(Path("x"), what="The model"):
        raise error


def fill(target: Path, *, force: bool = False) -> None:
    with output_directory(target, marker="m", force=force) as staged:
        (staged / "m").write_text("")
        (staged / "sub").mkdir()
        (staged / "sub" / "a").write_text("")


def refusal(path: Path, *, marker: str | tuple[str, ...] = "m", force: bool = True) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_output_directory(path, marker=marker, force=force)
    return caught.value


@pytest.mark.parametrize("added", ["thesis.doc", "sub/notes", ".hidden", "empty/"])
def test_what_was_added_to_a_result_is_never_removed(tmp_path: Path, added: str) -> None:
    fill(tmp_path / "out")
    path = tmp_path / "out" / added
    path.mkdir() if added.endswith("/") else path.write_text("mine")
    error = refusal(tmp_path / "out")
    assert f"holds files that roundoff did not write: {added.rstrip('/')}." in error.what
    assert error.fix.startswith("move them away or choose another -o")
    assert path.exists()


def test_a_folder_with_the_markers_name_alone_is_a_strangers(tmp_path: Path) -> None:
    for name in ("m", "a", "b", "c"):
        (tmp_path / name).write_text("mine")
    assert "did not write: a, b, c." in refusal(tmp_path).what
    (tmp_path / ".roundoff-files").write_text("not JSON")
    assert "did not write: a, b, c." in refusal(tmp_path).what


@pytest.fixture
def exchanges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can let two names change what they stand for."""
    if not request.param:
        monkeypatch.setattr(files, "exchange", lambda first, second: False)
    return bool(request.param)


BOTH_WAYS = pytest.mark.parametrize("exchanges", [True, False], indirect=True)


@BOTH_WAYS
@pytest.mark.parametrize(("before", "force"), [(True, True), (False, False), (False, True)])
def test_what_was_put_there_while_the_result_was_made_stays(
    tmp_path: Path, exchanges: bool, before: bool, force: bool
) -> None:
    target = tmp_path / "out"
    if before:
        fill(target)
    with (  # noqa: PT012
        pytest.raises(BadInput, match="out was filled while this run was at work, and stays as it is") as caught,
        output_directory(target, marker="m", force=force) as staged,
    ):
        (staged / "m").write_text("new")
        target.mkdir(exist_ok=True)
        (target / "late").write_text("mine")
    assert (target / "late").read_text() == "mine"
    assert (target / "m").exists() == before
    assert (tmp_path / "out-2" / "m").read_text() == "new"
    assert caught.value.fix == f"mv '{tmp_path / 'out-2'}' to where you want it"
    assert names(tmp_path) == ["out", "out-2"]


@BOTH_WAYS
def test_of_two_runs_into_one_folder_the_first_result_stays(tmp_path: Path, exchanges: bool) -> None:
    target = tmp_path / "out"
    with pytest.raises(BadInput, match="out-2"), output_directory(target, marker="m") as slow:  # noqa: PT012
        (slow / "m").write_text("slow")
        with output_directory(target, marker="m") as quick:
            # Neither takes what the other writes for something that was left behind.
            assert slow.is_dir()
            (quick / "m").write_text("quick")
    assert (target / "m").read_text() == "quick"
    assert (tmp_path / "out-2" / "m").read_text() == "slow"


@BOTH_WAYS
def test_an_earlier_result_is_replaced_and_nothing_else_is_left(tmp_path: Path, exchanges: bool) -> None:
    fill(tmp_path / "out")
    with output_directory(tmp_path / "out", marker="m", force=True) as staged:
        (staged / "m").write_text("new")
    assert (tmp_path / "out" / "m").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_what_killed_runs_left_is_removed_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = [tmp_path / name for name in (".0123abcd.partial", "out.partial-0123abcd", "out.old-0123abcd")]
    left[0].write_text("half")
    left[1].mkdir()
    (left[1] / "half").write_text("half")
    fill(left[2])
    others = ["out.partial-mine", "other.partial-0123abcd", "out.old-0123abcde", ".partial"]
    for name in others:
        (tmp_path / name).mkdir()
    with pytest.raises(BadInput, match="already holds a result"):
        check_output_directory(tmp_path / "out", marker="m", force=False)
    # The result that was moved away for a new one, which never came, is back.
    assert names(tmp_path) == sorted(["out", *others])
    assert [record.getMessage() for record in caplog.records] == [
        f"{left[0]}, left by a run that was killed, was removed",
        f"{tmp_path / 'out'}, moved away by a run that was killed, is back in its place",
        f"{left[1]}, left by a run that was killed, was removed",
    ]


def test_what_a_running_command_writes_is_left_alone(tmp_path: Path) -> None:
    with staged_file(tmp_path / "x") as file, output_directory(tmp_path / "out", marker="m") as staged:
        check_output_directory(tmp_path / "out", marker="m", force=True)
        check_output_file(tmp_path / "y", force=False, option="--html")
        assert file.exists()
        assert staged.exists()
        (staged / "m").write_text("")
    assert names(tmp_path) == ["out"]


def test_scratch_folders_of_killed_commands_are_removed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from roundoff.core.claims import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1]))
(folder.path / "x").write_text("x")
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", code, str(tmp_path)]
    killed = Path(subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip())
    assert (killed / "x").is_file()
    with ScratchFolder(tmp_path) as mine:
        assert names(tmp_path) == [mine.name]
        with ScratchFolder(tmp_path) as second:
            assert names(tmp_path) == sorted([mine.name, second.name])
    assert names(tmp_path) == []


def test_a_report_written_into_a_result_belongs_to_it(tmp_path: Path) -> None:
    for force in (False, True, True):
        fill(tmp_path / "out", force=force)
        write_text(tmp_path / "out" / "report.xml", "<?xml ...")
    assert names(tmp_path / "out") == [".roundoff-files", "m", "report.xml", "sub"]
    assert names(tmp_path) == ["out"]


def test_a_list_that_names_files_elsewhere_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    fill(tmp_path / "out")
    (tmp_path / "out" / ".roundoff-files").write_text('["m", "sub", "sub/a", "../precious"]')
    fill(tmp_path / "out", force=True)
    assert names(tmp_path) == ["out", "precious"]


def test_a_result_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    error = refusal(tmp_path / "out", marker=("run.json", "stats.json"))
    assert "a result of another kind: it has no run.json or stats.json" in error.what
    check_output_directory(tmp_path / "out", marker=("run.json", "m"), force=True)


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    fill(link)
    fill(link, force=True)
    assert link.is_symlink()
    assert names(tmp_path) == ["link", "real"]
    assert names(tmp_path / "real") == [".roundoff-files", "m", "sub"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dangling", "is a link that leads nowhere"),
        ("loop", "is a link that leads nowhere"),
        ("file/below", "file is not a folder"),
        ("n" * 300, "could not be written: File name too long"),
        ("n" * 300 + "/below", "could not be written: File name too long"),
    ],
)
def test_a_place_where_nothing_can_be_made_is_refused_at_once(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    before = names(tmp_path)
    error = refusal(tmp_path / name)
    assert message in error.what
    assert "-o" in error.fix
    assert names(tmp_path) == before


def test_long_names_are_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    fill(target)
    fill(target, force=True)
    write_text(tmp_path / ("t" * 255), "text")
    assert names(tmp_path) == [target.name, "t" * 255]


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for path in (Path(), Path(".."), tmp_path / "work"):
        assert "is the current folder, holds it" in refusal(path).what
    assert refusal(Path()).fix == "name a folder in it, as in -o out"


def test_a_full_disk_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput) as caught,
        output_directory(tmp_path / "out", marker="m") as staged,
        writing(staged / "x.npy"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.what == f"The disk is full: {tmp_path / 'out'} could not be written."


def test_text_replaces_only_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    for path in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(BadInput, match="is a folder, a pipe or a device"):
            write_text(path, "")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "force", "message"),
    [
        ("folder", True, "exists and is a folder"),
        ("pipe", True, "exists and is a pipe or a device"),
        ("thesis.xml/below.xml", True, "is not a folder"),
        ("dangling", True, "is a link that leads nowhere"),
        ("n" * 300, True, "File name too long"),
        ("report.xml", False, "report.xml exists"),
        ("thesis.xml", True, "does not look like a file that roundoff wrote"),
    ],
)
def test_a_file_that_would_not_be_written_is_refused_at_once(
    tmp_path: Path, name: str, force: bool, message: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "report.xml").write_text("<?xml version='1.0'?>\n<testsuites/>")
    (tmp_path / "thesis.xml").write_text("<?xml version='1.0'?>\n<thesis/>")
    with pytest.raises(BadInput, match=message) as caught:
        check_output_file(tmp_path / name, force=force, option="--junit")
    assert "--junit" in caught.value.fix
    check_output_file(tmp_path / "report.xml", force=True, option="--junit")
    check_output_file(tmp_path / "new" / "report.xml", force=False, option="--junit")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a pipe or a device")):
        with pytest.raises(BadInput, match=f"The model .* is {kind}, not a file"):
            regular_file(path, what="The model")
    with pytest.raises(BadInput, match=r"The model a.*b does not exist: no path holds a NUL"):
        regular_file(Path("a\0b"), what="The model")
    (tmp_path / "file").write_bytes(b"abc")
    assert regular_file(tmp_path / "file", what="The model") == 3


def test_lists_of_absurd_size_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list").write_bytes(b"x" * 2**20)
    assert len(read_small(tmp_path / "list", what="The list")) == 2**20
    monkeypatch.setattr(files, "_MAX_SMALL_BYTES", 2**20 - 1)
    with pytest.raises(BadInput, match=r"The list .* is larger than 0 MiB"):
        read_small(tmp_path / "list", what="The list")
