"""How each dialect's requests are read into the pivot and written from it: one file a dialect.

A file has `read(fields, dropped) -> Asked`, and where an endpoint may speak the dialect `write(asked, names,
dropped) -> fields`, `TAIL` and `KINDS`, the kinds of tools that it can say. What cannot be said is added to `dropped`,
by name.
"""
