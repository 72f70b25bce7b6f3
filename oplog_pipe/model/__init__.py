"""The values of a pipe: settings, records, status, reasons."""
