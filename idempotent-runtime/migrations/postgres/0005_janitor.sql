CREATE TABLE {janitor} (
    id         smallint    PRIMARY KEY CHECK (id = 1), -- there is one row
    holder     text        NOT NULL, -- which instance's janitor is active
    expires_at timestamptz NOT NULL  -- until when, unless it renews this
);
