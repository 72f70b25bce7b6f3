"""Parts that the commands of this distribution share."""
