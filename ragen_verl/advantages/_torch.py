"""torch, imported at its first use: a check of a recipe reads the estimators, and torch takes seconds to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import wrapt

if TYPE_CHECKING:
    import torch
else:
    torch = wrapt.lazy_import("torch")

__all__ = ["torch"]
