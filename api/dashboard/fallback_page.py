"""HTML page for browsers if the dashboard is not built: the commands, and the build instructions.

It loads no other resources.

Not here: the dashboard (``api.dashboard.files``).
"""

from __future__ import annotations

from typing import Final

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_COMMANDS: Final = (
    ("lockstep submit examples/gpt.yaml", "submit a job and follow it"),
    ("lockstep plan FILE", "show the plan of a job without submitting it"),
    ("lockstep ps", "list jobs"),
    ("lockstep show JOB", "one job: its plan, progress and outcome"),
    ("lockstep logs -f JOB", "follow its log lines"),
    ("lockstep metrics JOB", "its loss, speed and time per phase"),
    ("lockstep cancel JOB", "stop it"),
    ("lockstep nodes", "nodes, devices and the jobs on them"),
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Lockstep</title>
<style>
:root {{ --paper: #fbfaf8; --ink: #1c1b19; --soft: #6b675f; --line: #e4e0d8; --mark: #2f5d50; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #161514; --ink: #eceae5; --soft: #a09b90; --line: #33302b; --mark: #8fc7b5; }}
}}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }}
main {{ max-width: 44rem; margin: 0 auto; padding: 4rem 1.5rem; }}
h1 {{ font-size: 1.75rem; letter-spacing: -.01em; margin: 0 0 .25rem; }}
h2 {{ font-size: 1rem; margin: 2.5rem 0 .5rem; }}
p {{ margin: .5rem 0; color: var(--soft); }}
a {{ color: var(--mark); }}
table {{ border-collapse: collapse; width: 100%; }}
td {{ border-top: 1px solid var(--line); padding: .5rem 1rem .5rem 0; vertical-align: top; }}
td:last-child {{ color: var(--soft); }}
code {{ font: .9em ui-monospace, monospace; }}
td code {{ white-space: nowrap; }}
@media (max-width: 36rem) {{ td {{ display: block; padding: .5rem 0 0; }} td + td {{ border: 0; padding: 0 0 .5rem; }}
  td code {{ white-space: normal; }} }}
</style>
<main>
<h1>Lockstep {version}</h1>
<p>A training service for a team that shares GPUs. It is running, without its dashboard: the pages were not built when it
was installed, most often because no npm registry could be reached.</p>
<h2>To build them</h2>
<p>Where an npm registry can be reached, run <code>make pages</code> in a checkout, or <code>pip install</code> Lockstep's
sources again; <code>LOCKSTEP_PAGES=require</code> lets the install fail where it cannot build them. A running service takes
pages that <code>make pages</code> built at once. Nothing else needs them.</p>
<h2>Commands</h2>
<table>{rows}</table>
<h2>HTTP</h2>
<p>Everything is under <code>/v1</code> and needs <code>Authorization: Bearer TOKEN</code>; <code>lockstep up</code> says
which file holds the token.</p>
<p><a href="/openapi.json">/openapi.json</a> describes every address, for any OpenAPI viewer ·
<a href="/docs">/docs</a> shows it here (its viewer comes from the internet) · <a href="/readyz">/readyz</a></p>
</main>
</html>
"""


def page(version: str) -> str:
    """Return the HTML of the page for this version of Lockstep."""
    rows = "\n".join(
        f"<tr><td><code>{command}</code><td>{what}</tr>" for command, what in _COMMANDS
    )
    return _PAGE.format(version=version, rows=rows)
