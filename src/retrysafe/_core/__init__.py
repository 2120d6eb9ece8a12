"""Pure: values, decisions and the flow.  No clock, socket, file, thread or framework."""
