-- Database of the order service. Safe to repeat. The outbox table beside it is made by `walrelay init`
-- or sql/outbox.sql.

CREATE TABLE IF NOT EXISTS orders (
    order_id     text   PRIMARY KEY,            -- given by the client, so that it can repeat a request
    customer     text   NOT NULL,
    amount_cents bigint NOT NULL,
    payment      text   NOT NULL,
    status       text   NOT NULL,
    version      bigint NOT NULL                -- how many events the order has had
);
