package transport

import (
	"net/http"

	"github.com/bailey-sandbox/bailey/api"
)

// serveOpenAPI shows what REST has. It says nothing about this server, so that
// nobody needs a token to read it.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(api.OpenAPI)
}
