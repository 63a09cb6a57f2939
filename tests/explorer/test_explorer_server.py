"""The server: whom it refuses, what it answers, what it never tells, and how it ends."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from tests.conftest import TINY_PLAN
from tests.explorer.visiting import Visitor, request, sealed, serving
from tests.explorer.whole_answer import answer

from countveil.base import words
from countveil.explorer.settings import changed, opening
from countveil.plan.plans import Plan


@pytest.fixture
def inside(tiny):
    with serving(tiny) as address:
        yield Visitor(address).enter()


def test_the_printed_address_leads_to_the_page_and_leaves_its_token_behind(inside):
    entered, page = inside.replies
    assert urlsplit(inside.address).hostname == "127.0.0.1"
    token = urlsplit(inside.address).query.removeprefix("token=")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert f"Path={inside.data['base']}" in cookie  # no other port of this machine is sent it
    for reply in inside.replies:
        sealed(reply)
        assert token not in reply.text + reply.headers.get("location", "") + cookie
    assert page.status == 200
    assert "<h1>Tiny</h1>" in page.text
    assert not re.search(r'(?:src|href|action)="(?!#|data:,)', page.text)
    assert "http:" not in page.text


def test_a_wrong_token_cookie_or_key_is_refused(inside):
    port, base = inside.port, inside.data["base"]
    numbers = f"/plans/{inside.data['plan']}/numbers"
    wrong = "x" * 43
    for path in ("/", f"/?token={wrong}", "/?token=", "/?token=%C3%A9", f"{base}/", "/favicon.ico"):
        reply = sealed(request(port, "GET", path))
        assert (reply.status, "terminal" in reply.text) == (403, True), path
    for cookie in (None, "", "countveil=", f"countveil={wrong}", f"other={inside.cookie}"):
        reply = sealed(inside.call(numbers, inside.data["settings"], Cookie=cookie))
        assert reply.status == 403
        assert request(port, "GET", f"{base}/", Cookie=cookie or "").status == 403
    for key in (None, "", wrong, inside.cookie.partition("=")[2]):
        for path in (numbers, "/open", f"/plans/{inside.data['plan']}/save"):
            reply = sealed(inside.call(path, inside.data["settings"], X_Countveil_Key=key))
            assert reply.status == 403
    # The token opens the page alone, and the cookie nothing beside its path.
    query = urlsplit(inside.address).query
    assert request(port, "POST", f"{base}{numbers}?{query}", body=b"{}").status == 403
    assert request(port, "GET", "/elsewhere", Cookie=inside.cookie).status == 403
    assert request(port, "GET", f"{base}/absent", Cookie=inside.cookie).status == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "[::1]:{}", "", "0.0.0.0:{}"],
)
def test_another_host_name_is_refused_even_with_all_secrets(inside, host):
    named = host.format(inside.port)
    path = f"/plans/{inside.data['plan']}/numbers"
    assert sealed(inside.call(path, inside.data["settings"], Host=named)).status == 400
    query = urlsplit(inside.address).query
    assert request(inside.port, "GET", f"/?{query}", Host=named).status == 400


def test_this_machine_s_own_name_is_accepted(inside):
    query = urlsplit(inside.address).query
    local = f"localhost:{inside.port}"
    assert request(inside.port, "GET", f"/?{query}", Host=local).status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},  # another port of this machine
    ],
)
def test_another_site_is_refused_even_with_all_secrets(inside, tiny, headers):
    named = {name: value.format(inside.port) for name, value in headers.items()}
    document = {"settings": inside.data["settings"], "name": "new.toml", "replace": True}
    reply = inside.call(f"/plans/{inside.data['plan']}/save", document, **named)
    assert sealed(reply).status == 403
    assert not (tiny.parent / "new.toml").exists()


def test_answers_are_the_library_s_own_numbers(inside, tiny):
    plan = Plan.load(tiny)
    settings = replace(opening(plan), amount="1/3", prior="0.07", level="region")
    found = inside.ask("numbers", amount="1/3", prior="0.07", level="region")
    expected = answer(changed(plan, settings), settings)
    assert found["numbers"]["cost"] == "rho = 1/3"
    assert found["numbers"]["epsilon"] == expected.epsilon
    whole = inside.ask("levels", amount="1/3", prior="0.07", level="region")
    assert found["html"].count("…") == len(expected.priors)  # of the other level, until it is asked
    assert "…" not in whole["by_level"]
    for risk in (risk for item in expected.levels for risk in item.risks):
        assert f">{risk.times(limit=plan.intruder.limit)}</td>" in whole["by_level"]
    (early,) = [item for item in found["numbers"]["levels"] if item["risks"]]
    assert early in whole["numbers"]["levels"]
    for shown, item in zip(whole["numbers"]["levels"], expected.levels, strict=True):
        assert [risk["marginal_risk"] for risk in shown["risks"]] == [
            risk.marginal_risk for risk in item.risks
        ]
        assert shown["standard_error"] == item.error.standard_error
    assert list(found["numbers"]["correct_decision"].values()) == [
        risk.correct_decision for risk in expected.judged.risks
    ]
    selected = expected.selected
    for text in (
        words.brief_percent(selected.posterior, other=selected.prior),
        selected.times(limit=plan.intruder.limit),
    ):
        assert f'<td class="number">{text}</td>' in found["html"]
    assert (
        f"from 7 % to {words.brief_percent(selected.posterior, other=0.07)} on average"
        in found["sentence"]
    )
    assert found["ladder"] == expected.verdict.knowledge
    for name, key in found["charts"].items():
        drawn = inside.ask(f"charts/{name}", amount="1/3", prior="0.07", level="region")
        assert drawn["svg"].startswith("<svg ")
        assert drawn["key"] == key
        assert drawn["table"].startswith("<table>")


def test_what_is_refused_says_why_in_the_plan_s_words(inside):
    assert (
        "plan.toml: budget.rho: 'a lot' is not" in inside.ask("numbers", amount="a lot")["refused"]
    )
    assert "area is not measured" in str(
        inside.ask("numbers", weights=[["region", "1"], ["area", "0"]])
    )
    assert "unknown chart 'secret'" in inside.ask("charts/secret")["refused"]
    nothing = inside.call("/plans/0000/numbers", inside.data["settings"]).document(404)
    assert "no longer open" in nothing["refused"]


def test_the_first_plan_is_there_even_after_many_others(inside):
    for number in range(40):
        inside.call("/open", {"name": "a.toml", "text": f"# {number}\n{TINY_PLAN}"})
    path = f"/plans/{inside.data['plan']}/numbers"
    assert inside.call(path, inside.data["settings"]).status == 404
    assert (
        request(inside.port, "GET", inside.data["base"] + "/", Cookie=inside.cookie).status == 200
    )
    assert inside.call(path, inside.data["settings"]).status == 200


def test_plans_that_are_lost_from_disk_are_still_those_that_were_opened(tiny):
    other = tiny.parent / "other.toml"
    other.write_text(TINY_PLAN.replace("Tiny", "Other"))
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        opened = inside.call("/open", {"name": "other.toml"}).document()["plan"]
        for path in tiny.parent.iterdir():
            path.unlink()
        where = f"{inside.data['base']}/"
        for query, title in (("", "Tiny"), (f"?plan={opened}", "Other")):
            page = request(inside.port, "GET", where + query, Cookie=inside.cookie)
            assert f"<h1>{title}</h1>" in page.text
        assert "no such plan in this folder" in inside.call("/open", {"name": "other.toml"}).text
        tiny.parent.rmdir()
        assert request(inside.port, "GET", where, Cookie=inside.cookie).status == 200
        assert "No such file" in inside.save("new.toml")["refused"]
        assert "numbers" in inside.ask("numbers")


def test_a_plan_is_saved_beside_the_one_that_was_opened_and_opened_again(inside, tiny):
    assert inside.save("new.toml", amount="5", prior="0.3")["message"] == "Saved as new.toml."
    saved = Plan.load(tiny.parent / "new.toml")
    assert str(saved.cost) == "rho = 5"
    assert 0.3 in saved.intruder.priors
    assert saved.records == Plan.load(tiny).records
    assert "already exists" in inside.save("new.toml")["refused"]
    assert "comments" in inside.save("new.toml", replace=True)
    assert (
        "budget: -5 is not allowed; it must be above 0"
        in inside.save("bad.toml", amount="-5")["refused"]
    )
    assert not (tiny.parent / "bad.toml").exists()
    opened = inside.call("/open", {"name": "new.toml"}).document()["plan"]
    page = request(
        inside.port, "GET", f"{inside.data['base']}/?plan={opened}", Cookie=inside.cookie
    )
    assert ">new.toml" in page.text
    sent = {"name": "sent.toml", "text": TINY_PLAN.replace("Tiny", "Sent & <b>shown</b>")}
    opened = inside.call("/open", sent).document()["plan"]
    page = request(
        inside.port, "GET", f"{inside.data['base']}/?plan={opened}", Cookie=inside.cookie
    )
    assert "<h1>Sent &amp; &lt;b&gt;shown&lt;/b&gt;</h1>" in page.text
    assert not (tiny.parent / "sent.toml").exists()
    assert "not valid TOML" in inside.call("/open", {"name": "a.toml", "text": "="}).text


@pytest.mark.parametrize("name", ["../plan.toml", "/tmp/x.toml", "a/../b.toml", "..\\x.toml", "x"])
def test_a_path_is_refused_on_save_and_on_open(inside, tiny, name):
    before = {path: path.read_bytes() for path in tiny.parent.parent.rglob("*") if path.is_file()}
    assert "is not a valid file name" in inside.save(name, replace=True)["refused"]
    for document in ({"name": name}, {"name": name, "text": TINY_PLAN}):
        assert "is not a valid file name" in inside.call("/open", document).document()["refused"]
    after = {path: path.read_bytes() for path in tiny.parent.parent.rglob("*") if path.is_file()}
    assert after == before
    path = f"{inside.data['base']}/..%2f..%2fplan.toml"
    assert request(inside.port, "GET", path, Cookie=inside.cookie).status == 404


def test_two_hundred_at_once_are_all_answered_rightly(inside, tiny):
    amounts = [f"{1 + number % 50}/10" for number in range(200)]
    with ThreadPoolExecutor(200) as many:
        found = list(many.map(lambda amount: inside.ask("numbers", amount=amount), amounts))
    plan = Plan.load(tiny)
    expected = {}
    for amount in set(amounts):
        settings = replace(opening(plan), amount=amount)
        expected[amount] = answer(changed(plan, settings), settings)
    for amount, item in zip(amounts, found, strict=True):
        assert item["numbers"]["cost"] == str(expected[amount].cost)
        risks = item["numbers"]["levels"][-1]["risks"]
        assert risks[0]["marginal_risk"] == expected[amount].judged.risks[0].marginal_risk


def test_no_response_of_a_session_holds_a_count_of_the_records(tiny):
    planted = (48611, 90173, 73079, 65537)
    rows = zip(("A1", "A2", "A4", "A5"), planted, strict=True)
    (tiny.parent / "people.csv").write_text(
        "area,AGE,SEX,n\n" + "".join(f"{area},young,f,{count}\n" for area, count in rows)
    )
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', 'path = "people.csv"\ncounts = "n"'))
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        for changes in (
            {},
            {"amount": "9"},
            {"attack": "whole record", "attribute": None},
            {"amount": "no"},
        ):
            names = inside.ask("numbers", **changes).get("charts", {})
            inside.ask("levels", **changes)
            for name in names:
                inside.ask(f"charts/{name}", **changes)
        inside.save("saved.toml", amount="9")
        inside.call("/open", {"name": "saved.toml"})
        inside.call("/open", {"name": "people.csv"})
        inside.call("/open", {"name": "../people.csv"})
    assert len(inside.replies) > 20
    for reply in inside.replies:
        told = reply.text.replace(",", "") + str(reply.headers)
        for count in (*planted, sum(planted)):
            assert str(count) not in told
        assert "people.csv" not in reply.text or "not a valid file name" in reply.text


def test_records_that_are_not_there_are_not_missed(tiny):
    for name in ("people.csv", "places.csv"):
        (tiny.parent / name).unlink()
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        assert "refused" not in inside.ask("numbers", amount="3")
        assert "at most" in inside.ask("numbers", amount="3")["sentence"], "places are not known"
