ALTER TABLE {table} ADD COLUMN fingerprint BLOB; -- what the message said, as a digest; of handlers with `fingerprint`
ALTER TABLE {table} ADD COLUMN value       TEXT; -- what the handler returned, as JSON; of handlers with `replay`
