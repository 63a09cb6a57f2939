"""Sessions that would show records to others are refused, each with the setting that mends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from countveil.engines.spark.session import refuse_exposed
from countveil.errors import InputError

FIT = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
}


def session(master: str = "spark://somewhere:7077", **other: str | None):
    settings = {**FIT, **{key.replace("__", "."): value for key, value in other.items()}}
    kept = {key: value for key, value in settings.items() if value is not None}
    conf = SimpleNamespace(get=lambda key, default=None: kept.get(key, default))
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))


def test_a_fit_session_is_taken():
    refuse_exposed(session())
    refuse_exposed(session(spark__eventLog__enabled=None))  # off unless said otherwise
    refuse_exposed(session(spark__network__crypto__enabled=None, spark__ssl__rpc__enabled="true"))
    refuse_exposed(
        session("local[2]", spark__authenticate=None, spark__network__crypto__enabled=None)
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"spark__authenticate": None}, "spark.authenticate = false: anyone on the network"),
        ({"spark__network__crypto__enabled": "false"}, "or spark.ssl.rpc.enabled = true"),
        ({"spark__io__encryption__enabled": None}, "spilled counts lie on disks in the clear"),
        ({"spark__ui__enabled": None}, "spark.ui.enabled = true: a web page shows"),
        ({"spark__eventLog__enabled": "true"}, "a log tells how many rows each step had"),
    ],
)
def test_an_exposed_session_is_refused_unless_it_says_so(other, message):
    with pytest.raises(InputError) as caught:
        refuse_exposed(session(**other))
    assert message in str(caught.value)
    (key,) = (name.replace("__", ".") for name in other)
    assert f"or accept that by spark.countveil.accept = {key}" in str(caught.value)
    refuse_exposed(session(**other, spark__countveil__accept=f"spark.other, {key}"))


def test_encryption_on_disk_is_wanted_on_one_machine_too():
    with pytest.raises(InputError, match="spilled counts"):
        refuse_exposed(session("local[*]", spark__io__encryption__enabled="false"))
