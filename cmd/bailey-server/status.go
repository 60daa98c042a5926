package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

const statusUsage = `Usage: baileyd status

Says what the server of this user on this machine does.

`

func status(args []string, stdout io.Writer) error {
	f := newFlags("status", statusUsage, stdout)
	state := stateFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	dir, err := absolute(*state)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket(dir))
	}}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := baileyv1connect.NewServerServiceClient(client, "http://server").GetServer(ctx, &baileyv1.GetServerRequest{})
	if connect.CodeOf(err) == connect.CodeUnavailable {
		return fmt.Errorf("no server answers at %s: start one with: baileyd serve", socket(dir))
	}
	if err != nil {
		return err
	}
	counts, err := countSandboxes(ctx, baileyv1connect.NewSandboxServiceClient(client, "http://server"))
	if err != nil {
		return err
	}
	return showStatus(stdout, server, counts)
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
