package sdk

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// collector takes traces.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var data tracepb.TracesData // which looks like the request
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("BAILEYD", testenv.Binary(t, "baileyd"))
	t.Setenv("BAILEY_ADDRESS", "")
	t.Setenv("BAILEY_TOKEN", "")
	return c
}

// chains are the spans of a trace, each as the names from below the client's span
// down to it. They are all there when the server has ended.
func (c *collector) chains(trace, client string) map[string]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			byID[hex.EncodeToString(s.GetSpanId())] = s
		}
	}
	chains := map[string]*tracepb.Span{}
	for _, s := range byID {
		chain := s.GetName()
		above := hex.EncodeToString(s.GetParentSpanId())
		for p := byID[above]; p != nil; p = byID[above] {
			chain, above = p.GetName()+" > "+chain, hex.EncodeToString(p.GetParentSpanId())
		}
		if above == client {
			chains[chain] = s
		}
	}
	return chains
}

const (
	execChain    = "bailey.v1.ExecService/RunExec > keeper start > exec"
	sessionChain = "bailey.v1.SessionService/RunSession > exec"
	createChain  = "bailey.v1.SandboxService/CreateSandbox"
)

func TestOneTraceGoesFromTheClientToTheCommand(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	c := newCollector(t)
	client, err := Connect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "client")
	told, err := useTraced(ctx, client)
	span.End()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	trace, id := span.SpanContext().TraceID().String(), span.SpanContext().SpanID().String()
	chains := c.chains(trace, id)
	for _, want := range []string{execChain, sessionChain, createChain, createChain + " > files", createChain + " > compile", createChain + " > keeper open"} {
		if chains[want] == nil {
			t.Errorf("there is no %s in %v", want, chains)
		}
	}
	if want := "00-" + trace + "-" + hex.EncodeToString(chains[execChain].GetSpanId()) + "-01\n"; told != want {
		t.Errorf("the command was told %q, want %q", told, want)
	}
	for _, a := range chains[execChain].GetAttributes() {
		if a.GetKey() == "process.exit.code" && a.GetValue().GetIntValue() != 0 || strings.Contains(a.GetValue().GetStringValue(), "echo") {
			t.Errorf("attribute %v", a)
		}
	}
}

// useTraced runs commands, and returns what one of them knows of its span.
func useTraced(ctx context.Context, client *Client) (string, error) {
	sandbox, err := client.Create(ctx, nil)
	if err != nil {
		return "", err
	}
	result, err := sandbox.Run(ctx, Shell("echo $TRACEPARENT"))
	if err != nil {
		return "", err
	}
	session, err := sandbox.Session(ctx, nil)
	if err != nil {
		return "", err
	}
	_, err = session.Run(ctx, "true")
	return string(result.Stdout), err
}

// What another language's program needs to be traced.
const (
	pythonTraced = `
import asyncio, contextvars, sys, types
from bailey import AsyncSandbox, Sandbox, SandboxClient
given, current = sys.argv[1:]
client = SandboxClient(traceparent=given)
with Sandbox.create(client=client) as sb:
    sb.run("true", check=True)
client.close()
span = contextvars.ContextVar("span", default=None)
api = types.ModuleType("opentelemetry")
api.propagate = types.ModuleType("opentelemetry.propagate")
api.propagate.inject = lambda headers: headers.__setitem__("traceparent", span.get())
sys.modules["opentelemetry"] = api
async def main():
    span.set(current)
    async with await AsyncSandbox.create() as sb:
        await sb.run("true", check=True)
asyncio.run(main())
`
	nodeTraced = `
const [sdk, given, current] = process.argv.slice(1);
const { Sandbox, SandboxClient } = await import(sdk);
async function use(options) {
  const client = await SandboxClient.connect(options);
  const sb = await Sandbox.create({ client });
  await sb.run("true", { check: true });
  await sb.destroy();
  await client.close();
}
await use({ traceparent: () => given });
globalThis[Symbol.for("opentelemetry.js.api.1")] = {
  context: { active: () => current },
  propagation: { inject: (context, carrier, setter) => setter.set(carrier, "traceparent", context) },
};
await use({});
`
)

func TestTracesOfOtherLanguagesGoOn(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("python3"), testenv.Program("node"))
	root := testenv.ModuleRoot(t)
	for i, argv := range [][]string{
		{"/usr/bin/python3", "-B", "-c", pythonTraced},
		{"node", "--input-type=module", "-e", nodeTraced, filepath.Join(root, "sdk/typescript/dist/index.js")},
	} {
		t.Run(filepath.Base(argv[0]), func(t *testing.T) {
			c := newCollector(t)
			var traces [2]string
			for n := range traces {
				traces[n] = fmt.Sprintf("%032x", 0xabc0+2*i+n)
				argv = append(argv, "00-"+traces[n]+"-00000000000000ff-01")
			}
			command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "sdk/python/src"))
			command.Dir = t.TempDir()
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, trace := range traces {
				if chains := c.chains(trace, "00000000000000ff"); chains[execChain] == nil {
					t.Errorf("trace %s has only %v", trace, chains)
				}
			}
		})
	}
}
