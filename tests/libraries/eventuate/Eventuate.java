import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import io.eventuate.tram.messaging.common.ChannelMapping;
import io.eventuate.tram.messaging.common.Message;
import io.eventuate.tram.messaging.producer.MessageBuilder;
import io.eventuate.tram.messaging.producer.MessageProducer;
import io.eventuate.tram.spring.messaging.producer.jdbc.TramMessageProducerJdbcConfiguration;
import java.sql.DriverManager;
import java.util.Properties;
import javax.sql.DataSource;
import org.slf4j.LoggerFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.core.env.PropertiesPropertySource;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/** Makes the table of Eventuate Tram with its script (`create`), or sends one message with its producer and prints the id. */
public class Eventuate {
    /** Of eventuate-common-flyway, postgresql/3.create-message-table.sql: the library itself makes no table. */
    private static final String TABLE = """
        CREATE SCHEMA eventuate;
        CREATE TABLE eventuate.message (
          id VARCHAR(1000) PRIMARY KEY,
          destination TEXT NOT NULL,
          headers TEXT NOT NULL,
          payload TEXT NOT NULL,
          published SMALLINT DEFAULT 0,
          message_partition SMALLINT,
          creation_time BIGINT
        );""";

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("create")) {
            try (var connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
                connection.createStatement().execute(TABLE);
            }
            return;
        }
        // The default writes all of DEBUG to standard output.
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.OFF);
        var properties = new Properties();
        properties.put("spring.datasource.driver-class-name", "org.postgresql.Driver");
        try (var context = new AnnotationConfigApplicationContext()) {
            context.getEnvironment().getPropertySources().addFirst(new PropertiesPropertySource("program", properties));
            DataSource source = new DriverManagerDataSource(System.getenv("JDBC_URL"));
            PlatformTransactionManager transactions = new DataSourceTransactionManager(source);
            context.registerBean(DataSource.class, () -> source);
            context.registerBean(JdbcTemplate.class, () -> new JdbcTemplate(source));
            context.registerBean(PlatformTransactionManager.class, () -> transactions);
            context.registerBean(TransactionTemplate.class, () -> new TransactionTemplate(transactions));
            context.registerBean(ChannelMapping.class, () -> channel -> channel);
            context.register(TramMessageProducerJdbcConfiguration.class);
            context.refresh();
            Message message = MessageBuilder.withPayload("{\"order\": 7, \"name\": \"Größe\"}")
                .withHeader(Message.PARTITION_ID, "order-7")
                .withHeader("event-type", "OrderPlaced")
                .build();
            context.getBean(TransactionTemplate.class).executeWithoutResult(
                status -> context.getBean(MessageProducer.class).send(arguments[1], message));
            System.out.println(message.getId());
        }
    }
}
