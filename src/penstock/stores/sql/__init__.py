"""The moves of tickets, written once for every engine that speaks SQL."""
