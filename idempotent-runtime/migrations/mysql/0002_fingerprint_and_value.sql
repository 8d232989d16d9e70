ALTER TABLE {table}
    ADD COLUMN fingerprint BINARY(32) NULL COMMENT 'what the message said, as a digest; of handlers with `fingerprint`',
    ADD COLUMN value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'what the handler returned, as JSON; of handlers with `replay`';
