"""One HTTP exchange without I/O: what was asked, what is held back, what is sent."""
