"""What processes share: memory, locks and wake-ups, all made before the processes are forked."""
