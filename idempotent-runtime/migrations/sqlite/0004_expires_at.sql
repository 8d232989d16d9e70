-- Serves the purge. It holds the key too, so that a batch is found without the table.
CREATE INDEX {expiry_index} ON {name} (expires_at);
