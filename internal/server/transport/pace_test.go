package transport

import (
	"strings"
	"testing"
	"time"
)

func TestEachOwnerHasAPaceOfItsOwn(t *testing.T) {
	f := start(t, func(c *Config) { c.Rate = 2 })
	now := time.Unix(1, 0)
	f.pace.now = func() time.Time { return now }
	ask := func(who string) (status int, retry, body string) {
		res, body := f.do(t, "GET", "/v1/sandboxes/s", "", map[string]string{"Authorization": "Bearer " + f.tokens[who]})
		return res.StatusCode, res.Header.Get("Retry-After"), body
	}
	for _, step := range []struct {
		who  string
		wait time.Duration
		want int
	}{
		{"ann", 0, 404},
		{"ann", 0, 404},
		{"ann", 0, 429},
		{"bob", 0, 404},
		{"ann", 400 * time.Millisecond, 429},
		{"ann", 100 * time.Millisecond, 404},
		{"ann", 0, 429},
		{"ann", time.Hour, 404},
		{"ann", 0, 404},
		{"ann", 0, 429},
		{"admin", 0, 404},
		{"admin", 0, 404},
		{"admin", 0, 404},
	} {
		now = now.Add(step.wait)
		status, retry, body := ask(step.who)
		if status != step.want {
			t.Fatalf("%+v: got %d %s", step, status, body)
		}
		if refused := status == 429; refused != (retry == "1") || refused != strings.Contains(body, "requests_exhausted") {
			t.Errorf("%+v: Retry-After %q, %s", step, retry, body)
		}
	}
}
