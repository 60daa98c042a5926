import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Fetches URLs with both clients of the JDK, and prints the bodies. Every URL is
 * tried; the status tells whether one could not be had.
 */
public class Fetch {
    private interface Getter {
        String get(URI url) throws Exception;
    }

    public static void main(String[] urls) throws Exception {
        trust(Path.of(System.getenv("SSL_CERT_FILE")));
        boolean failed = false;
        for (String url : urls) {
            for (Getter getter : new Getter[] {Fetch::byConnection, Fetch::byClient}) {
                try {
                    System.out.println(url + ": " + getter.get(URI.create(url)));
                } catch (Exception e) {
                    e.printStackTrace();
                    failed = true;
                }
            }
        }
        System.exit(failed ? 1 : 0);
    }

    /** Java does not read certificates from where other programs do. */
    private static void trust(Path file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream in = Files.newInputStream(file)) {
            store.setCertificateEntry("site", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        SSLContext.setDefault(context);
        HttpsURLConnection.setDefaultSSLSocketFactory(context.getSocketFactory());
    }

    private static String byConnection(URI url) throws Exception {
        HttpURLConnection connection = (HttpURLConnection) url.toURL().openConnection();
        try (InputStream in = connection.getInputStream()) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static String byClient(URI url) throws Exception {
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(HttpRequest.newBuilder(url).build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IOException(answer.statusCode() + " " + answer.body());
        }
        return answer.body();
    }
}
