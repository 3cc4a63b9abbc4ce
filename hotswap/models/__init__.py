"""Models: from a name to an endpoint.

names.py      what `-m` may be, and `[models.NAME]`
choices.py    which presets could be used now
addresses.py  base URLs, however they are written
keys.py       a provider's key, from the one variable that holds it
prices.py     prices and context windows, from a list that others keep
"""

from hotswap.models.choices import Available, available, none_chosen
from hotswap.models.model import Model, served
from hotswap.models.names import resolve

__all__ = ["Available", "Model", "available", "none_chosen", "resolve", "served"]
