ALTER TABLE {table} ADD COLUMN batch BINARY(8) NULL COMMENT 'which batch inserted it; of handlers with `each`';
