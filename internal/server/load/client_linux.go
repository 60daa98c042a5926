package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/dial"
)

// client speaks to the server as any program could, with nothing between that
// sends again or hides what something costs.
type client struct {
	base, token string
	http        *http.Client
	server      baileyv1connect.ServerServiceClient
	codes       baileyv1connect.CodebaseServiceClient
	boxes       baileyv1connect.SandboxServiceClient
	execs       baileyv1connect.ExecServiceClient
	shells      baileyv1connect.SessionServiceClient
	trees       baileyv1connect.FileServiceClient
}

func processors() int { return runtime.NumCPU() }

func connectTo(address, token string) (*client, error) {
	base, over, err := dial.To(address, token, &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true})
	if err != nil {
		return nil, err
	}
	c := &client{base: base, token: token, http: over}
	c.server = baileyv1connect.NewServerServiceClient(c.http, base)
	c.codes = baileyv1connect.NewCodebaseServiceClient(c.http, base)
	c.boxes = baileyv1connect.NewSandboxServiceClient(c.http, base)
	c.execs = baileyv1connect.NewExecServiceClient(c.http, base)
	c.shells = baileyv1connect.NewSessionServiceClient(c.http, base)
	c.trees = baileyv1connect.NewFileServiceClient(c.http, base)
	return c, nil
}

// post sends a body over REST, and reads the answer.
func (c *client) post(ctx context.Context, path, kind string, body io.Reader, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	data, err := c.do(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

func (c *client) do(r *http.Request) ([]byte, error) {
	res, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", r.URL.Path, res.Status, bytes.TrimSpace(data))
	}
	return data, err
}

// keyed returns a context whose request has an idempotency key.
func keyed(ctx context.Context, key string) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Idempotency-Key", key)
	return ctx
}
