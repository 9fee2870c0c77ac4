# SPDX-License-Identifier: Apache-2.0
"""Of runs without a GPU, where the tests' fake driver takes the driver's place: calls it saw that the driver would forbid."""
import ctypes
import os

import trainers


def is_dry() -> bool:
    """Nothing is executed: results are not worth comparing, calls and sizes are checked all the same."""
    return "MPT_STANDIN_DRY" in os.environ


def violations() -> str:
    """Since the last call; nothing with a driver."""
    driver = trainers.options.get("driver")
    library = ctypes.CDLL(driver) if driver else None
    if not hasattr(library, "standin_violations"):
        return ""
    library.standin_violations.restype = ctypes.c_char_p
    text = library.standin_violations().decode()
    library.standin_reset()
    return text
