"""The values of a relay: settings, rows, events, errors, and the protocols between its parts."""
