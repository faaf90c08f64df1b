"""What a notebook shows of a value beside its ``repr``: tables and pictures as HTML."""

import base64
import html
import io
from collections.abc import Iterable, Mapping
from typing import Any


def text(said: str) -> str:
    """Text as it is, in lines."""
    return f"<pre>{html.escape(said)}</pre>"


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows with the same columns; numbers with four digits."""
    listed = list(rows)
    columns = list(listed[0]) if listed else []
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in columns)}</tr>" for row in listed)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def figure(**options: Any) -> Any:
    """A matplotlib ``Figure`` that a notebook draws where a cell ends with it, whether pyplot is in use or not."""
    from matplotlib.figure import Figure

    class Drawn(Figure):
        def _repr_png_(self) -> bytes:
            return png(self, dpi=100)

    return Drawn(**options)


def picture(figure: Any) -> str:
    """A matplotlib ``Figure``, drawn into the page."""
    return f'<img src="data:image/png;base64,{base64.b64encode(png(figure, dpi=72)).decode()}" alt="">'


def png(figure: Any, dpi: int) -> bytes:
    """A matplotlib ``Figure`` as a PNG file."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    return drawn.getvalue()


def _cell(value: Any) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
