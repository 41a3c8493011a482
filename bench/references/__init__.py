"""What a programmer without Penstock would write: the least a queue on that store can cost."""
