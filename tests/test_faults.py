"""Twenty kills, and copies of what was killed; `python -m benchmarks faults` makes hundreds."""

import os
import random
import resource
import signal
import subprocess
import sys

import pytest
from benchmarks.faults import Tally, count_events, kill_until_done, prepare

from countveil import Release
from countveil.demo.starter import write_demo
from countveil.plan.plans import Plan
from tests.conftest import HANG, run, run_process, standing_still


def test_a_release_killed_anywhere_finishes_once_charged_with_its_draws_kept(tmp_path):
    plan = prepare(tmp_path, people=200)
    events = count_events(plan)
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    rng, tally = random.Random(seed), Tally()
    while tally.kills < 20 or not tally.copies:
        kill_until_done(plan, "out", events, rng, tally)
    assert (
        tally.before_charge + tally.while_drawing + tally.while_publishing + tally.after_manifest
        == tally.kills
    )


@pytest.mark.parametrize(
    ("number", "stage", "status"),
    [
        (signal.SIGKILL, "measuring", -signal.SIGKILL),
        (signal.SIGTERM, "measuring", 3),
        (signal.SIGTERM, "estimating", 3),
    ],
)
def test_the_command_line_killed_or_asked_to_stop_resumes(tmp_path, number, stage, status):
    plan = prepare(tmp_path, people=200)
    out = tmp_path / "out"
    command = ("release", plan, "--to", out, "--quiet")
    with standing_still(stage, "countveil", *command) as process:
        process.send_signal(number)
        assert process.wait(timeout=HANG) == status
    ran = run(*command)
    assert ran.status == 0, ran.err
    assert Release.read(out).verify(Plan.load(plan).ledger_path)
    assert len(Plan.load(plan).ledger().charges()) == 1


def test_a_full_disk_after_the_charge_exits_3_and_resumes(tmp_path):
    plan = write_demo(tmp_path / "demo", people=2000, seed=1)
    # Nothing is compiled then: the machine code is a large file too.
    text = plan.read_text() + '[postprocess]\nmethod = "none"\ntables = []\nlevels = {}\n'
    plan.write_text(text)
    out = tmp_path / "out"

    def small_files_only() -> None:
        # The kernel refuses to let any file grow past this: a full disk in miniature. The ledger
        # and small parts fit, the level of blocks does not.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    command = ("release", plan, "--to", out, "--quiet", "--workers", 1)
    ran = run_process(*command, preexec_fn=small_files_only)
    assert ran.status == 3, ran.err
    assert "File too large" in ran.err
    assert "run the same command again to resume without another charge" in ran.err
    ledger = Plan.load(plan).ledger_path
    assert len(Plan.load(plan).ledger(ledger).charges()) == 1
    assert not (out / "manifest.json").exists()
    ran = run(*command)
    assert ran.status == 0, ran.err
    assert Release.read(out).verify(ledger)
    assert len(Plan.load(plan).ledger(ledger).charges()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_stop_before_the_charge_writes_nothing(tmp_path, number):
    plan = prepare(tmp_path, people=200)
    program = (
        "import signal, sys, time\n"
        # What a shell starts in the background ignores this signal, and so may these tests.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from countveil import cli\n"
        "from countveil.engines.local import local_engine\n"
        "def slow(self, plan):\n"
        "    print('counting', flush=True)\n"
        "    while True:\n"
        "        time.sleep(3600)\n"
        "local_engine.LocalEngine.tabulate = slow\n"
        f"sys.argv = ['countveil', 'release', {str(plan)!r}, '--to', {str(tmp_path / 'out')!r}]\n"
        "cli.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "stopped; to resume a release, run the same command again" in err
    assert not (tmp_path / "out").exists()
    assert not Plan.load(plan).ledger_path.exists()
