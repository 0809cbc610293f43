"""Ticks become scenes: of a running fabric, and of any moment of a recording."""
