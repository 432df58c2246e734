"""Classes straight from an installed transformers: each of the list still ends as the list says."""

import pytest

from transformers_verdicts import rows
from transformers_verdicts import verdict

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("source", "expected"), rows(), ids=[source for source, _ in rows()])
def test_source_from_transformers(source, expected):
    found = verdict(source)
    if expected.startswith("reference: "):
        assert found.startswith(("reference: ", "compiles, "))
    else:
        assert found == expected
