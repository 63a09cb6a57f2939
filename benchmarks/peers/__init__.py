"""Other people's packages, in a virtual environment of their own, asked by JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = _HERE.parents[1] / ".venv-peers"


def ask(script: str, question: dict[str, Any]) -> Any:
    """Run a script of this folder in the peers' environment; return the JSON it prints."""
    python = _interpreter()
    answer = subprocess.run(
        [python, _HERE / script, json.dumps(question)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(answer.stdout)


def _interpreter() -> Path:
    """Return the peers' Python; make its environment when it is missing or out of date."""
    python, stamp = _ENVIRONMENT / "bin" / "python", _ENVIRONMENT / "installed-requirements.txt"
    requirements = _HERE / "requirements.txt"
    wanted = requirements.read_text()
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"installing peers into {_ENVIRONMENT.name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", _ENVIRONMENT], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
        subprocess.run([str(python), *install, str(requirements)], check=True)
        stamp.write_text(wanted)
    return python
