"""Decisions about messages under foreign transactions."""
