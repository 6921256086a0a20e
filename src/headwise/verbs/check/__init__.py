"""Is this attention right, and if not, which known fault reproduces its numbers: the verb `check`.

`check` asks, and returns a frozen `CheckResult`; `render_text` and `render_json` show it.
"""
