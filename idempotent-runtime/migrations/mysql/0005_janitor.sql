CREATE TABLE {janitor} (
    id         SMALLINT PRIMARY KEY COMMENT 'there is one row',
    holder     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'which instance''s janitor is active',
    expires_at DATETIME(6) NOT NULL COMMENT 'until when, in UTC, unless it renews this'
) ENGINE = InnoDB;
