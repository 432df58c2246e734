"""The real command line over the small stages; with WAIT set, the validator waits for a signal."""

import os
import signal

from dataclasses import replace

from small_stages import STAGES

from liger_dev import stages
from liger_dev.pipeline import View


def _wait(context):
    signal.pause()


def _views(context, output, brief):
    return [View("kernel", f"# {output}", "python")]


made = (replace(STAGES[0], views=_views), STAGES[1], STAGES[2])
if "WAIT" in os.environ:
    # Python leaves an interrupt ignored if it was so at the start, as it is below a shell's background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    made = (*made[:2], replace(made[2], make=_wait))
stages.stages_of = lambda request: made

from liger_dev import cli  # noqa: E402  (the command line takes the stages as they are when it is imported)

cli.main()
