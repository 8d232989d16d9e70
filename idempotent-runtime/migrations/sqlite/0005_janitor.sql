CREATE TABLE {janitor} (
    id         INTEGER PRIMARY KEY CHECK (id = 1), -- there is one row
    holder     TEXT    NOT NULL, -- which instance's janitor is active
    expires_at INTEGER NOT NULL  -- until when, in Unix milliseconds, unless it renews this
) STRICT;
