ALTER TABLE {table}
    ADD COLUMN fingerprint bytea, -- what the message said, as a digest; of handlers with `fingerprint`
    ADD COLUMN value       text;  -- what the handler returned, as JSON; of handlers with `replay`
