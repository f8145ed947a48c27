"""The reading of a manual's commands and outputs."""

import pytest

from tests.tools.typed_manual import Typed, mismatch, sessions

PAGE = """\
Text.

<!-- varies: 26.9 1476 -->
```
master# salt-run virt.migrate web1 \\
    hv2
…
web1 was moved in 26.9 s; downtime 1476 ms
master# salt-run virt.list   # the names
```

- in a list:

  <!-- not typed: needs a power cut -->
  ```console
  # salt-run virt.fence hv2
  ```

<!-- fails -->
```
master# salt-run virt.start nobody
no guest 'nobody' on any hypervisor
```

```yaml
virt: {hosts: 'hv*'}
```
"""


def test_a_page_is_read_in_its_order():
    moved, fenced, failed = sessions(PAGE)
    assert moved.steps == (
        Typed(
            "salt-run virt.migrate web1 hv2", ["…", "web1 was moved in 26.9 s; downtime 1476 ms"]
        ),
        Typed("salt-run virt.list", None),
    )
    assert (moved.varies, moved.fails, moved.skipped) == (("26.9", "1476"), False, None)
    assert (fenced.steps, fenced.skipped) == (
        (Typed("salt-run virt.fence hv2", None),),
        "needs a power cut",
    )
    assert failed.fails


@pytest.mark.parametrize(
    ("wanted", "printed", "varies", "expected"),
    [
        (["a  b"], "a b\n", (), None),
        (["a", "b"], "a\nx\nb\n", (), "b"),
        (["a", "…", "b"], "a\nx\ny\nb\n", (), None),
        (["a"], "a\nb\n", (), "(end of the output), not: b"),
        (["a", "…"], "a\nb\n", (), None),
        (["moved in 26.9 s"], "moved in 3.1 s", ("26.9",), None),
        (["moved in 26.9 s"], "moved in 3.1 s", (), "moved in 26.9 s"),
        (["web1 … hv2"], "web1 is on hv2", (), None),
        (["hv2 has 2"], "hv1 has 3", ("2",), "hv2 has 2"),
        (["hv2 has 2"], "hv2 has 3", ("2",), None),
        (["(a|b)"], "a", (), "(a|b)"),
        (None, "anything", (), None),
    ],
)
def test_an_output_is_compared(wanted, printed, varies, expected):
    assert mismatch(wanted, printed, varies) == expected
