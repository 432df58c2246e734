"""References of well-known operations, one file an operation; they are read as text, never imported by the tool."""
