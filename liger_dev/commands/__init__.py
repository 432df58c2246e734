"""The commands by family, each a function of what was typed; `cli.py` lists them."""
