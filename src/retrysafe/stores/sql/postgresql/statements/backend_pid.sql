-- Which of the server's processes answers.
-- Columns: its number
SELECT pg_backend_pid()
