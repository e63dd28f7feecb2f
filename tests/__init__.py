"""The tests: tests/unit mirrors kbatch, and a subject has one file."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
