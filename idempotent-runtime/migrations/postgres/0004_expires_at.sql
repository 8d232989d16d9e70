-- Serves the purge. A B-tree costs 22 bytes a claim: 236 with the table and its key, at a UUID as the key. BRIN would
-- cost none, but its ranges only ever grow: after some purges every range holds a new claim, and each purge reads the
-- whole table. Measure with `cargo bench -p tests --bench purge -- bytes`.
CREATE INDEX ON {table} (expires_at);
