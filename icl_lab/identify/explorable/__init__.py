"""The fingerprint in a page: measured residual factors against algorithms whose numbers the reader moves.

``data`` makes what ``view.js`` reads, ``figure`` the same where no script runs, and ``own`` the page of an answer of
``identify`` (``Identified.page``). The page of the laboratory shows the same figure of its own networks.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the template ``fingerprint.html`` and the scripts lie."""
