"""What only maintainers run, not in the wheel: planted bugs, crash harness, fuzzing, evidence."""
