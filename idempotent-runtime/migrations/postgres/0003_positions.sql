CREATE TABLE {positions} (
    consumer   text COLLATE "C" NOT NULL, -- who applies
    sender     text COLLATE "C" NOT NULL, -- who delivers; empty where the handler names none
    entity     text COLLATE "C" NOT NULL, -- whose order it is, in its stored form: printable ASCII, at most 255 bytes
    number     bigint           NOT NULL, -- the number that was applied last
    updated_at timestamptz      NOT NULL, -- when it was applied
    PRIMARY KEY (consumer, sender, entity)
);
