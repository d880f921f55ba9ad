// Makes the table of a topic of Watermill (`create`), or publishes one message to it in a transaction and prints its id.
package main

import (
	stdsql "database/sql"
	"fmt"
	"log"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	step, topic := os.Args[1], os.Args[2]
	db, err := stdsql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	defer db.Close()
	schema := sql.DefaultPostgreSQLSchema{}
	if step == "create" {
		subscriber, err := sql.NewSubscriber(
			sql.BeginnerFromStdSQL(db),
			sql.SubscriberConfig{SchemaAdapter: schema, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}},
			watermill.NopLogger{},
		)
		check(err)
		check(subscriber.SubscribeInitialize(topic))
		check(subscriber.Close())
		return
	}
	tx, err := db.Begin()
	check(err)
	publisher, err := sql.NewPublisher(sql.TxFromStdSQL(tx), sql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	check(err)
	event := message.NewMessage(watermill.NewUUID(), []byte(`{"order": 7, "name": "Größe"}`))
	event.Metadata.Set("tenant", "acme")
	check(publisher.Publish(topic, event))
	check(tx.Commit())
	fmt.Println(event.UUID)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
