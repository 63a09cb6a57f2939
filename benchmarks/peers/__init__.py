"""Other packages, in a separate virtual environment, called through JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = _HERE.parents[1] / ".venv-peers"


def ask(script: str, question: dict[str, Any], *, one_thread: bool = False) -> Any:
    """Run a script of this folder in the peers' environment; return the JSON it prints."""
    python = _interpreter()
    names = ("OPENBLAS", "OMP", "MKL", "RAYON") if one_thread else ()
    answer = subprocess.run(
        [python, _HERE / script, json.dumps(question)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **{f"{name}_NUM_THREADS": "1" for name in names}},
    )
    return json.loads(answer.stdout)


def _interpreter() -> Path:
    """Return the peers' Python; create its environment if it is missing or out of date."""
    python, stamp = _ENVIRONMENT / "bin" / "python", _ENVIRONMENT / "installed-requirements.txt"
    requirements = _HERE / "requirements.txt"
    wanted = requirements.read_text()
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"installing peers into {_ENVIRONMENT.name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", _ENVIRONMENT], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
        command = [str(python), *install, str(requirements)]
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(
                f"the peers could not be installed; skip them with --no-peers, or create "
                f"{_ENVIRONMENT.name} on a machine with a package index: {' '.join(command)}"
            )
        stamp.write_text(wanted)
    return python
