CREATE TABLE {positions} (
    consumer   TEXT    NOT NULL, -- who applies
    sender     TEXT    NOT NULL, -- who delivers; empty where the handler names none
    entity     TEXT    NOT NULL, -- whose order it is, in its stored form: printable ASCII, at most 255 bytes
    number     INTEGER NOT NULL, -- the number that was applied last
    updated_at INTEGER NOT NULL, -- when it was applied, in Unix milliseconds
    PRIMARY KEY (consumer, sender, entity)
) STRICT, WITHOUT ROWID;
