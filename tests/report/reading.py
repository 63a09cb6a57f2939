"""Read a page as a browser would: identifiers, links, scripts, styles, text."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.inside, self.parts, self.text = [], [], [], {}, []
        self.feed(text)

    @property
    def words(self):
        """All text, with single spaces."""
        return " ".join("".join(self.text).split())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[key] for key in ("href", "src", "action") if key in given]
        assert not [key for key in given if key.startswith("on")], "inline handlers do not run"
        self.inside.append((tag, given))

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, given = self.inside[-1] if self.inside else ("", {})
        if tag in ("style", "script"):
            self.parts.setdefault((tag, given.get("type")), []).append(data)
        else:
            self.text.append(data)


def table_rows(section, start):
    """Return the rows of the table whose caption starts so, as dictionaries."""
    (found,) = [item for item in section.tables if item.caption.startswith(start)]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def chart_rows(section, name):
    """Return the numbers of a chart of a section."""
    (found,) = [chart for chart in section.charts if chart.name == name]
    return found.table.to_pylist()
