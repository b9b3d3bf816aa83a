"""Writes the name of each module of this repository that a process imports into a file; for `loaded_lines.recorded`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class _Recorder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("ragen_"):
            with Path(os.environ["RECORDED_IMPORTS"], str(os.getpid())).open("a") as file:
                file.write(f"{name}\n")


sys.meta_path.insert(0, _Recorder())
