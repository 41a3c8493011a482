"""Imported by the process that all others are forked from: it ends with the storm, they with it."""

from tests.faults.storm.program import die_with_parent

die_with_parent()
