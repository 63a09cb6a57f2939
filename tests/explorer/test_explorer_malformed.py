"""What is malformed, and what goes wrong: refused as that, in words, behind the guard."""

import pytest
from tests.conftest import TINY_PLAN
from tests.explorer.visiting import Visitor, request, sealed, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    (folder / "plan.toml").write_text(TINY_PLAN)
    return folder


@pytest.fixture(scope="module")
def inside(folder):
    with serving(folder / "plan.toml") as address:
        yield Visitor(address).enter()


def sent(inside, path, body):
    """Send bytes as they are, with all secrets."""
    where = f"{inside.data['base']}{path}"
    secrets = {"Cookie": inside.cookie, "X_Countveil_Key": inside.data["key"]}
    return sealed(request(inside.port, "POST", where, body=body, **secrets))


def test_what_is_malformed_is_refused_as_that_with_what_is_wrong(inside, folder):
    own, plan = inside.data["settings"], f"/plans/{inside.data['plan']}"
    not_json = (b"", b"{", b"[" * 100_000, b"\xff", b'"\\ud800"', b"9" * 5000, b'{"a": 1} 2')
    for body in not_json:
        for path in (f"{plan}/numbers", f"{plan}/levels", f"{plan}/save", "/open"):
            assert "is not JSON" in sent(inside, path, body).document(400)["refused"]
    large = inside.call("/open", {"name": "a.toml", "text": "#" * 3_000_000}).document(400)
    assert "the request is too large; a plan may have 1,000,000 bytes" in large["refused"]
    for settings, said in (
        ([], "settings: settings: "),
        (None, "settings: settings: "),
        (own | {"more": 1}, "settings: more: unexpected"),
        ({key: own[key] for key in own if key != "prior"}, "settings: prior: field required"),
        (own | {"amount": 5}, "settings: amount: input should be a valid string"),
        (own | {"level": 1.5}, "settings: level: input should be a valid string"),
        (own | {"weights": "x"}, "settings: weights: "),
        (own | {"mechanism": "none"}, "settings: mechanism: "),
        (
            own | {"attack": "unknown attribute", "attribute": None},
            "settings: attribute: set it for",
        ),
    ):
        for path, document in (
            (f"{plan}/numbers", settings),
            (f"{plan}/levels", settings),
            (f"{plan}/charts/risk-by-level", settings),
            (f"{plan}/save", {"settings": settings, "name": "a.toml"}),
        ):
            found = inside.call(path, document).document(400)["refused"]
            assert found.startswith(said), (path, said)
    for document in (5, "x", [], {}, {"name": 5}, {"name": None}, {"name": "a.toml", "text": 1}):
        assert "refused" in inside.call("/open", document).document(400)
        assert "refused" in inside.call(f"{plan}/save", document).document(400)
    assert sorted(path.name for path in folder.glob("*.toml")) == ["plan.toml"]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"amount": "a lot"}, ["amount"]),
        ({"amount": "-1"}, ["amount"]),
        ({"amount": "1e-14"}, ["amount"]),
        ({"amount": "x", "mechanism": "discrete Laplace"}, ["amount"]),
        ({"prior": "2"}, ["prior"]),
        ({"prior": "half"}, ["prior"]),
        ({"prior": "1e400"}, ["prior"]),
        ({"level": "nowhere"}, ["level"]),
        ({"prior": "1e-400"}, ["prior"]),
        ({"prior": "0.99999999999999999999"}, ["prior"]),
        ({"amount": "1e400"}, ["amount"]),
        ({"weights": [["region", "1"], ["area", "-1"]]}, ["weights"]),
        ({"weights": [["region", "0"], ["area", "0"]]}, ["weights"]),
        ({"neighbors": "x"}, []),
    ],
)
def test_a_refusal_names_the_controls_it_is_about(inside, changes, fields):
    settings = {**inside.data["settings"], **changes}
    reply = inside.call(f"/plans/{inside.data['plan']}/numbers", settings)
    assert reply.status == (400 if "neighbors" in changes else 200)
    assert reply.document(reply.status)["fields"] == fields


def test_a_wrong_path_a_wrong_method_and_a_fault_are_answered_behind_the_guard(inside, monkeypatch):
    base, cookie = inside.data["base"], {"Cookie": inside.cookie}
    secret = {**cookie, "X_Countveil_Key": inside.data["key"]}
    assert sealed(request(inside.port, "GET", f"{base}/absent", **cookie)).status == 404
    assert sealed(request(inside.port, "GET", f"{base}/open", **cookie)).status == 405
    assert sealed(request(inside.port, "PUT", f"{base}/", body=b"", **secret)).status == 405
    lost = sealed(request(inside.port, "GET", f"{base}/?plan=zzz", **cookie))
    assert lost.status == 404
    assert "<h1>Plan not open</h1>" in lost.text
    assert f'href="{base}/"' in lost.text

    def fault(*_):
        raise RuntimeError("90173")

    monkeypatch.setattr("countveil.explorer.server.answered", fault)
    failed = sealed(inside.call(f"/plans/{inside.data['plan']}/numbers", inside.data["settings"]))
    assert "internal error in the explorer" in failed.document(500)["refused"]
    assert "90173" not in failed.text + str(failed.headers)
