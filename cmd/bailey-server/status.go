package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/server/dial"
)

const statusUsage = `Usage: baileyd status [FLAGS]

Says what a server does: the one at $BAILEY_ADDRESS, with the token in
$BAILEY_TOKEN, or that of this user on this machine. Of the sandboxes those are
counted that the token may see.

`

func status(args []string, stdout io.Writer) error {
	f := newFlags("status", statusUsage, stdout)
	state := stateFlag(f)
	address := f.String("address", "", "`address` of the server: unix:/PATH, http://HOST:PORT or https://HOST:PORT (default $BAILEY_ADDRESS, or the socket in --state)")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag; see: baileyd status --help", f.Arg(0))
	}
	at, err := statusAddress(f, *address, *state)
	if err != nil {
		return err
	}
	base, client, err := dial.To(at, os.Getenv("BAILEY_TOKEN"), http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := baileyv1connect.NewServerServiceClient(client, base).GetServer(ctx, &baileyv1.GetServerRequest{})
	if connect.CodeOf(err) == connect.CodeUnavailable {
		return fmt.Errorf("no server answers at %s: %w; start one with: baileyd serve", at, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	counts, err := countSandboxes(ctx, baileyv1connect.NewSandboxServiceClient(client, base))
	if err != nil {
		return err
	}
	return showStatus(stdout, server, counts)
}

// statusAddress is that of the server that is asked. Who names a state directory means
// the server there, whatever the environment says.
func statusAddress(f *flag.FlagSet, address, state string) (string, error) {
	named := false
	f.Visit(func(given *flag.Flag) { named = named || given.Name == "state" })
	if address == "" && !named {
		address = os.Getenv("BAILEY_ADDRESS")
	}
	if address != "" {
		return address, nil
	}
	dir, err := absolute(state)
	return "unix:" + socket(dir), err
}

// countSandboxes counts those of every owner by their states.
func countSandboxes(ctx context.Context, client baileyv1connect.SandboxServiceClient) (map[string]int, error) {
	counts := map[string]int{}
	token := ""
	for {
		page, err := client.ListSandboxes(ctx, &baileyv1.ListSandboxesRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, s := range page.GetSandboxes() {
			name := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_STATE_"))
			counts[name]++
		}
		if token = page.GetNextPageToken(); token == "" {
			return counts, nil
		}
	}
}

func showStatus(stdout io.Writer, server *baileyv1.Server, counts map[string]int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "version    %s\n", plain.Text(server.GetVersion()))
	fmt.Fprintf(&b, "since      %s\n", server.GetStartTime().AsTime().UTC().Format(time.RFC3339))
	total := 0
	var states []string
	for _, state := range []string{"created", "running", "paused", "stopped", "failed"} {
		if n := counts[state]; n > 0 {
			total += n
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	fmt.Fprintf(&b, "sandboxes  %d", total)
	if len(states) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(states, ", "))
	}
	b.WriteString("\n")
	for _, r := range server.GetRuntimes() {
		word := "yes"
		if !r.GetAvailable() {
			word = "no: " + plain.Text(r.GetReason())
		}
		fmt.Fprintf(&b, "runtime    %s: %s\n", plain.Text(r.GetName()), word)
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}
