"""Access control: passwords, cookies and tokens, origins of web pages. No I/O."""
