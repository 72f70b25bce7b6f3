"""The messages that wait to be published, and the tasks that send them."""
