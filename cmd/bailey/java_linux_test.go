package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// javaProgram gets URLs, one after the other, in both of the ways that Java has.
const javaProgram = `
import java.net.*;
import java.net.http.*;

public class Get {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            try {
                HttpURLConnection old = (HttpURLConnection) new URI(url).toURL().openConnection();
                System.out.println("old " + old.getResponseCode());
                HttpResponse<String> r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(new URI(url)).build(), HttpResponse.BodyHandlers.ofString());
                System.out.println("new " + r.statusCode() + " " + r.body().lines().findFirst().orElse(""));
            } catch (Exception e) {
                System.out.println("failed " + e);
            }
        }
    }
}
`

func TestJavaTrustsTheGateWhereItOpensTLS(t *testing.T) {
	testenv.Requires(t, testenv.Program("java"), testenv.Program("javac"))
	inWorld(t, func(t *testing.T, w *world) {
		compile := exec.Command("javac", "-d", w.dir, w.write("Get.java", javaProgram, 0o644))
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		w.env = append(w.env, "SSL_CERT_FILE="+w.ca)
		const rule = `"rules": [{"host": "good.example", "methods": ["GET"], "paths": ["/x"], "action": "allow", "inspect": true}]`
		for name, network := range map[string]string{"captured": rule, "by the proxy": `"transparent": false, ` + rule} {
			t.Run(name, func(t *testing.T) {
				w.heard()
				got := w.under(granting(network), "java", "-cp", w.dir, "Get", "https://good.example/x", "https://good.example/y", "https://bad.example/x")
				want := []string{"old 200", "new 200 answer from good.example", "old 403", "new 403 Bailey: GET good.example:443 is not allowed: no rule allows this method and path."}
				lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
				if len(lines) != len(want)+1 || !slices.Equal(lines[:len(want)], want) || !strings.HasPrefix(lines[len(want)], "failed ") {
					t.Errorf("got %+v", got)
				}
				if _, served := w.heard(); !slices.Equal(served, []string{"GET good.example /x", "GET good.example /x"}) {
					t.Errorf("the server heard %q", served)
				}
			})
		}
	})
}
