CREATE TABLE {table} (
    consumer   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'who processed',
    sender     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'who delivered; empty where the handler names none',
    `key`      VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the message, in its stored form: printable ASCII',
    expires_at DATETIME(6)  NOT NULL COMMENT 'when the claim may be purged, in UTC',
    PRIMARY KEY (consumer, sender, `key`)
) ENGINE = InnoDB;
