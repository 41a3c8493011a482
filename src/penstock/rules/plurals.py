"""Formats counts of things, such as "1 message" and "1,200 messages"."""


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
