"""torch, imported where it is first used: the check of a recipe reads the estimators, and importing torch takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import wrapt

if TYPE_CHECKING:
    import torch
else:
    torch = wrapt.lazy_import("torch")

__all__ = ["torch"]
