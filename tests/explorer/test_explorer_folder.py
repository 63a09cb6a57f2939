"""Plan files by name: listed, opened and saved in one folder, and never outside it."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import TINY_PLAN

from countveil.errors import FolderError, InputError
from countveil.explorer.plan_folder import LARGEST, PlanFolder, plain
from countveil.explorer.session import Session

OUTSIDE = (
    *("../plan.toml", "..", ".toml", "a/b.toml", "/etc/plan.toml", "a\\b.toml", "plan.toml/"),
    *("plan.toml\0", "..\\plan.toml", "%2e%2e%2fplan.toml", "~/plan.toml", "", "plan", "plan.csv"),
    *(".hidden.toml", "plan.toml\n", "a" * 200 + ".toml", "C:plan.toml", "./plan.toml"),
)


@pytest.fixture
def folder(tiny):
    inner = tiny.parent / "inner"
    inner.mkdir()
    (inner / "mine.toml").write_text(TINY_PLAN)
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (inner / "notes.txt").write_text("[release]\n")
    return PlanFolder(inner)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_is_not_plain_is_refused(folder, name):
    before = sorted(folder.path.parent.rglob("*"))
    for act in (
        lambda: plain(name),
        lambda: folder.read(name),
        lambda: folder.write(name, "x", replace=True),
    ):
        with pytest.raises(InputError, match="is not a valid file name; use letters"):
            act()
    assert sorted(folder.path.parent.rglob("*")) == before


def test_plans_are_listed_and_nothing_else(folder):
    (folder.path / "large.toml").write_text(TINY_PLAN + "#" * LARGEST)
    (folder.path / "out.toml").symlink_to("../plan.toml")
    (folder.path / "dir.toml").mkdir()
    assert folder.names() == ["mine.toml"]
    assert folder.read("mine.toml") == TINY_PLAN
    for name in ("large.toml", "out.toml", "dir.toml", "absent.toml"):
        with pytest.raises(InputError, match="no such plan in this folder"):
            folder.read(name)


def test_a_file_is_replaced_only_on_request(folder):
    with pytest.raises(FolderError, match="mine.toml already exists; choose another name, or"):
        folder.write("mine.toml", "new", replace=False)
    assert folder.read("mine.toml") == TINY_PLAN
    folder.write("mine.toml", "new", replace=True)
    assert folder.read("mine.toml") == "new"
    folder.write("Plan 2 – größer.toml".replace("–", "-"), "other", replace=False)
    assert folder.read("Plan 2 - größer.toml") == "other"
    (folder.path / "dir.toml").mkdir()
    with pytest.raises(FolderError, match="is a folder"):
        folder.write("dir.toml", "x", replace=True)
    assert not [name for name in os.listdir(folder.path) if "temporary" in name]


def test_a_new_plan_is_there_whole_or_not_at_all(folder, monkeypatch):
    before = {path.name for path in folder.path.iterdir()}

    def stopped(*_):
        seen = {path.name for path in folder.path.iterdir()} - before
        assert "new.toml" not in seen  # until all of it is durable, it has no name
        raise KeyboardInterrupt

    for step in ("countveil.base.storage.sync", "os.link"):
        with monkeypatch.context() as patched:
            patched.setattr(step, stopped)
            with pytest.raises(KeyboardInterrupt):
                folder.write("new.toml", TINY_PLAN, replace=False)
        assert {path.name for path in folder.path.iterdir()} == before
    folder.write("new.toml", TINY_PLAN, replace=False)
    assert folder.read("new.toml") == TINY_PLAN


def test_where_there_are_no_links_a_new_plan_is_still_whole_and_replaces_nothing(
    folder, monkeypatch
):
    def without_links(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", without_links)
    folder.write("new.toml", TINY_PLAN, replace=False)
    assert folder.read("new.toml") == TINY_PLAN
    with pytest.raises(FolderError, match="already exists"):
        folder.write("new.toml", "other", replace=False)
    assert folder.read("new.toml") == TINY_PLAN


def test_of_many_who_save_under_one_name_one_does(folder):
    def attempt(number):
        try:
            folder.write("shared.toml", f"{number}" * 5000, replace=False)
        except FolderError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as many:
        assert sum(many.map(attempt, range(8))) == 1
    assert len(set(folder.read("shared.toml"))) == 1
    with ThreadPoolExecutor(8) as many:
        for made in [many.submit(folder.write, "shared.toml", "x", replace=True) for _ in range(8)]:
            made.result()
    assert [name for name in os.listdir(folder.path) if "temporary" in name] == []


def test_a_plan_that_cannot_be_read_is_not_offered(folder, monkeypatch):
    def unreadable(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", unreadable)  # who runs this may be allowed everything
    assert folder.names() == []


def test_a_link_is_replaced_and_not_followed(folder):
    target = folder.path.parent / "plan.toml"
    (folder.path / "link.toml").symlink_to(target)
    with pytest.raises(FolderError, match="already exists"):
        folder.write("link.toml", "x", replace=False)
    folder.write("link.toml", "x", replace=True)
    assert target.read_text() == TINY_PLAN
    assert not (folder.path / "link.toml").is_symlink()


def test_a_session_keeps_the_plans_opened_last(tiny):
    session, first = Session.start(tiny)
    assert session.still_open(first.identity) is first
    assert session.open_file("plan.toml") is first
    for number in range(40):
        session.open_text("other.toml", f"# {number}\n{TINY_PLAN}")
    with pytest.raises(InputError, match="no longer open; open it again"):
        session.still_open(first.identity)


def test_a_session_without_a_plan_opens_the_starter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session, first = Session.start(None)
    assert first.name == "starter.toml"
    assert session.folder.path == tmp_path
    assert session.folder.names() == []
    with pytest.raises(InputError, match="name a plan file"):
        Session.start(tmp_path / "absent.toml")
