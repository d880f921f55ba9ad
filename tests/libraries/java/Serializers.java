import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.type.Money;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Serializes one event with Avro and one with Protobuf into the outbox and prints their bytes (`write`), or reads one event
 * of each topic with the deserializers and prints them (`read`). The serializers are Apicurio's; what they ask of a registry is
 * answered here, from a folder with a file for each schema.
 */
public class Serializers {
    private static final Schema ORDER = new Schema.Parser().parse("""
        {"type": "record", "name": "Order", "fields": [
            {"name": "number", "type": "long"}, {"name": "name", "type": "string"}]}""");
    private static final ObjectMapper JSON = new ObjectMapper();
    private static Path schemas;

    public static void main(String[] arguments) throws Exception {
        schemas = Files.createDirectories(Path.of("schemas"));
        HttpServer registry = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        registry.createContext("/", Serializers::answer);
        registry.start();
        Map<String, Object> config = new HashMap<>();
        config.put("apicurio.registry.url", "http://127.0.0.1:" + registry.getAddress().getPort() + "/apis/registry/v3");
        config.put("apicurio.registry.auto-register", true);
        String avro = arguments[1], protobuf = arguments[2];
        if (arguments[0].equals("write")) {
            GenericRecord order = new GenericData.Record(ORDER);
            order.put("number", 7L);
            order.put("name", "Größe");
            write(avro, order, new AvroKafkaSerializer<>(), config);
            Money price = Money.newBuilder().setCurrencyCode("EUR").setUnits(12).setNanos(500_000_000).build();
            write(protobuf, price, new ProtobufKafkaSerializer<>(), config);
        } else {
            read(avro, new AvroKafkaDeserializer<GenericRecord>(), config);
            read(protobuf, new ProtobufKafkaDeserializer<Money>(), config);
        }
        // Threads of the registry's client keep a JVM alive.
        System.exit(0);
    }

    private static <T> void write(String topic, T event, Serializer<T> serializer, Map<String, Object> config) throws Exception {
        serializer.configure(config, false);
        byte[] payload = serializer.serialize("outbox.event." + topic, event);
        String sql = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (?, ?, 'order-7', 'Placed', ?)";
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_URL"));
                var insert = connection.prepareStatement(sql)) {
            insert.setObject(1, UUID.randomUUID());
            insert.setString(2, topic);
            insert.setBytes(3, payload);
            insert.executeUpdate();
        }
        System.out.println(HexFormat.of().formatHex(payload));
    }

    private static <T> void read(String topic, Deserializer<T> deserializer, Map<String, Object> config) {
        deserializer.configure(config, false);
        Map<String, Object> client = Map.of("bootstrap.servers", System.getenv("BROKERS"), "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(client, new StringDeserializer(), deserializer)) {
            consumer.assign(List.of(new TopicPartition("outbox.event." + topic, 0)));
            var records = consumer.poll(Duration.ofSeconds(60));
            records.forEach(it -> System.out.println(it.key() + " " + it.value().toString().replaceAll("\\s+", " ").strip()));
        }
    }

    /** Stores a schema under the next number, or finds the one of a number. */
    private static synchronized void answer(HttpExchange exchange) throws IOException {
        byte[] answer;
        String path = exchange.getRequestURI().getPath();
        if (exchange.getRequestMethod().equals("POST")) {
            JsonNode artifact = JSON.readTree(exchange.getRequestBody());
            int id = schemas.toFile().list().length + 1;
            Files.writeString(schemas.resolve("" + id), artifact.at("/firstVersion/content/content").asText());
            answer = JSON.writeValueAsBytes(Map.of("version", Map.of("version", "1", "globalId", id, "contentId", id,
                "groupId", "default", "artifactId", artifact.get("artifactId"), "artifactType", artifact.get("artifactType"))));
        } else if (path.endsWith("/references")) {
            answer = "[]".getBytes();
        } else {
            answer = Files.readAllBytes(schemas.resolve(path.substring(path.lastIndexOf('/') + 1)));
        }
        exchange.getResponseHeaders().set("content-type", "application/json");
        exchange.sendResponseHeaders(200, answer.length);
        exchange.getResponseBody().write(answer);
        exchange.close();
    }
}
