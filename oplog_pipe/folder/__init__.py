"""The folder of a pipe: opened, checked, bounded, and operated on from outside."""
