"""Topics as clients use them: publish, poll, rights."""
