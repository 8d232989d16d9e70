CREATE TABLE {positions} (
    consumer   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'who applies',
    sender     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'who delivers; empty where the handler names none',
    entity     VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'whose order it is, in its stored form: printable ASCII',
    number     BIGINT       NOT NULL COMMENT 'the number that was applied last',
    updated_at DATETIME(6)  NOT NULL COMMENT 'when it was applied, in UTC',
    PRIMARY KEY (consumer, sender, entity)
) ENGINE = InnoDB;
