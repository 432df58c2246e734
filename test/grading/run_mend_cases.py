"""Prints JSON: for each check of mend_cases.py, what it says with all mends and without its own, or on a GPU (`cuda`).

A process of its own a check, forked before kernels are imported: mends can't be taken back.
"""

import json
import os
import sys
import warnings

import torch
import triton  # noqa: F401 - imported once here, not in each fork

from liger_dev.grading.interpreter import MENDS
from liger_dev.grading.interpreter import install


def forked(action):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            text = json.dumps(action())
        except BaseException as error:
            text = json.dumps(f"{type(error).__name__}: {error}")
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.wait()
    return json.loads(text) if text else "crashed"


def cases():
    import mend_cases

    return {name: [check.__name__ for check in checks] for name, checks in mend_cases.CASES.items()}


def run(check, leave_out):
    applied = install(leave_out)
    assert install() == applied
    import mend_cases

    return bool(getattr(mend_cases, check)())


def in_interpreter():
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    applied = forked(install)
    results = {
        name: {check: [forked(lambda: run(check, ())), forked(lambda: run(check, (name,)))] for check in checks}
        for name, checks in forked(cases).items()
    }
    json.dump({"mends": [mend.name for mend in MENDS], "applied": applied, "results": results}, sys.stdout)


def on_gpu():
    import mend_cases

    torch.set_default_device("cuda")
    verdicts = {check.__name__: attempt(check) for checks in mend_cases.CASES.values() for check in checks}
    json.dump(verdicts, sys.stdout)


def attempt(check):
    try:
        return bool(check())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


on_gpu() if sys.argv[1:] == ["cuda"] else in_interpreter()
