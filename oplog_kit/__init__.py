"""Parts common to the commands of this distribution."""
