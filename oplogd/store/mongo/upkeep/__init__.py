"""Removal by age and by bounds."""
