-- As `oplog-relay schema postgres` prints it.
CREATE TABLE "outbox" (
    "id" bigserial PRIMARY KEY,
    "create_time" timestamptz NOT NULL DEFAULT now(),
    "topic" varchar(249) NOT NULL,
    "key" varchar(100) NOT NULL,
    "value" text,
    "header_keys" text[] NOT NULL DEFAULT '{}',
    "header_values" text[] NOT NULL DEFAULT '{}',
    "leader_id" uuid
) WITH (fillfactor = 50); -- room for the mark beside its row: the index does not grow
