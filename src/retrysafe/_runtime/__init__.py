"""What performs a flow, and what all guarded calls of a process share."""
