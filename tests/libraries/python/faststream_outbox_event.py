"""Makes the table of faststream-outbox (`create`), or writes one event with its broker and prints the row's id."""

import asyncio
import os
import sys

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

metadata = MetaData()
table = make_outbox_table(metadata)


async def main(step: str, topic: str) -> None:
    engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+asyncpg://"))
    if step == "create":
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        return
    broker = OutboxBroker(engine, outbox_table=table)
    async with async_sessionmaker(engine)() as session, session.begin():
        event = await broker.publish(
            {"order": 7, "name": "Größe"}, queue=topic, session=session, headers={"tenant": "acme"}
        )
    print(event)


asyncio.run(main(*sys.argv[1:]))
