CREATE TABLE {table} (
    consumer   text COLLATE "C" NOT NULL, -- who processed
    sender     text COLLATE "C" NOT NULL, -- who delivered; empty where the handler names none
    key        text COLLATE "C" NOT NULL, -- the message, in its stored form: printable ASCII, at most 255 bytes
    expires_at timestamptz      NOT NULL, -- when the claim may be purged
    PRIMARY KEY (consumer, sender, key)
);
