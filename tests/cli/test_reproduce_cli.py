"""`countveil reproduce`, run in this process."""

import json

import pytest
from typer.testing import CliRunner

from countveil.cli import reproduce_command
from countveil.cli.command_line import app
from countveil.errors import InputError
from countveil.papers import catalogue


def run(*arguments):
    assert reproduce_command.reproduce is not None  # importing it registers the command
    return CliRunner().invoke(app, ["reproduce", *arguments])


def test_one_item_as_text():
    done = run("002", "table-3", "--quiet")
    assert done.exit_code == 0
    assert "002 Table 3" in done.output
    for said in ("0.161", "0.17772", "not there", "1.0496", "add-remove"):
        assert said in done.output


def test_one_item_as_json_with_a_gallery(tmp_path):
    done = run("004", "Table 2", "--json", "--quiet", "--out", str(tmp_path / "gallery"))
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    (item,) = found["items"]
    assert (item["paper"], item["item"]) == ("004", "table-2")
    assert {value["id"] for value in item["values"]} >= {"drha.cor2.n2", "drha.cor2.n3"}
    assert found["gallery"] == str(tmp_path / "gallery" / "index.html")
    assert "Corollary 2" in (tmp_path / "gallery" / "index.html").read_text(encoding="utf-8")


def test_a_whole_paper():
    done = run("000", "--json", "--quiet", "--quick")
    assert done.exit_code == 0
    assert [item["name"] for item in json.loads(done.stdout)["items"]] == [
        *(f"Figure {n}" for n in range(1, 7)),
        "Text",
    ]


def test_the_list_names_every_item():
    done = run("--list", "--json")
    rows = json.loads(done.stdout)["items"]
    assert [(row["paper"], row["item"]) for row in rows] == [
        (entry.paper, entry.slug) for entry in catalogue.items()
    ]
    assert any(row["needs"] for row in rows)
    assert "table-sa1" in run("001", "--list").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("009",), "unknown paper '009'"),
        (("002", "table-8"), "unknown item 'table-8' in paper 002"),
        (("002", "table-4", "--data", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_bad_input_is_named(arguments, message):
    done = run(*arguments, "--quiet")
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
