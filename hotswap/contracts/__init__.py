"""The types that parts are made of. Standard library only; each file is one kind of part."""
