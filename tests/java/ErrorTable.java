import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.protocol.Errors;

/** Kafka's error codes, a line each: the code, its name, and its exception's class and superclasses. */
public class ErrorTable {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            List<String> classes = new ArrayList<>();
            Class<?> kind = error.exception() == null ? null : error.exception().getClass();
            while (kind != null && kind != RuntimeException.class) {
                classes.add(kind.getSimpleName());
                kind = kind.getSuperclass();
            }
            System.out.println(error.code() + " " + error.name() + " " + String.join(",", classes));
        }
    }
}
