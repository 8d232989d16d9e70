CREATE TABLE {table} (
    consumer   TEXT    NOT NULL, -- who processed
    sender     TEXT    NOT NULL, -- who delivered; empty where the handler names none
    key        TEXT    NOT NULL, -- the message, in its stored form: printable ASCII, at most 255 bytes
    expires_at INTEGER NOT NULL, -- when the claim may be purged, in Unix milliseconds
    PRIMARY KEY (consumer, sender, key)
) STRICT, WITHOUT ROWID;
