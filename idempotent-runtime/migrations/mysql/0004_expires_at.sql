-- Serves the purge.
CREATE INDEX expires_at ON {table} (expires_at);
