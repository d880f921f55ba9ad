-- Database of the notification service. Safe to repeat. The tables of the inbox are made by its `init`.

-- No unique constraint: a second notification for an order would stand here for all to see.
CREATE TABLE IF NOT EXISTS notifications (
    order_id text        NOT NULL,
    customer text        NOT NULL,
    sent_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS notifications_order_id ON notifications (order_id);

-- What was handled, in which order; only to show that each event was handled once and in order.
CREATE TABLE IF NOT EXISTS handled_events (
    position   bigint GENERATED ALWAYS AS IDENTITY,
    order_id   text   NOT NULL,
    event_type text   NOT NULL,
    version    bigint NOT NULL
);
