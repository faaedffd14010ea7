"""kvadvise as a real process, for the tests of its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """A folder to run kvadvise in, with a configuration directory of its own and no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.env = compiled | {
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
            "COLUMNS": "80",
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """The command's exit code, stdout and stderr; a traceback in either is a failure of its own."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "kvadvise", *arguments],
            cwd=self.folder,
            env=self.env,
            input=stdin.decode(),
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def write(self, name: str, data: bytes | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path
