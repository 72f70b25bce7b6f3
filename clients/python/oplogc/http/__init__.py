"""Addresses, requests and answers of an agent."""
