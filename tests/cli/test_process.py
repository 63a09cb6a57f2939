"""What only a process of its own shows: exit statuses, colours, the ways to start it."""

import os
from importlib import metadata

import pytest
from tests.conftest import TINY_PLAN, run_process

from countveil import cli


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--version",), 0),
        (("price", "plan.toml"), 1),
        (("price", "none.toml"), 2),
        (("release",), 2),
    ],
)
def test_the_exit_status_is_that_of_the_process(tiny, words, status):
    tiny.write_text(TINY_PLAN + "[intruder]\npriors = [0.02]\nlimit = 1.2\n")
    ran = run_process(*words, cwd=tiny.parent)
    assert ran.status == status
    assert "Traceback" not in ran.err


def test_the_script_is_the_same_command_line():
    (script,) = (
        found for found in metadata.entry_points(group="console_scripts", name="countveil")
    )
    assert script.load() is cli.main


def test_no_color_and_quiet_are_honoured(tiny, tmp_path_factory):
    env = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": ""}
    ran = run_process("price", tiny, env=env)
    assert "\x1b[" not in ran.out
    apart = tmp_path_factory.mktemp("ledgers") / "ledger.sqlite"  # or it warns, quiet or not
    out = tiny.parent / "runs" / "out"
    ran = run_process("release", tiny, "--to", out, "--ledger", apart, "--quiet", env=env)
    assert ran.err == ""
