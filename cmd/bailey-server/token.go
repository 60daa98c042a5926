package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/token"
	"github.com/bailey-sandbox/bailey/internal/store"
)

const tokenUsage = `Usage: baileyd token create --owner OWNER [--name NAME] [--scope SCOPES] [--lifetime TIME]
       baileyd token list [--owner OWNER]
       baileyd token revoke ID|NAME

A token lets a program use the server for an owner. It is printed once and kept
nowhere; the server knows its hash. Scopes, separated by commas:

  read      look at what there is, files included
  write     make, change and remove codebases, sandboxes and files
  exec      run commands in sandboxes
  metrics   read /metrics, and nothing else
  admin     all of it, for every owner

`

func tokens(args []string, stdout, stderr io.Writer) error {
	verb := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	f := newFlags("token", tokenUsage, stdout)
	state := stateFlag(f)
	owner := f.String("owner", "", "whom the token is for")
	name := f.String("name", "", "what to call it")
	scopes := f.String("scope", "read,write,exec", "what it may be used for")
	lifetime := f.Duration("lifetime", 0, "how long it holds; 0 is until it is revoked")
	if err := parse(f, args); err != nil {
		return err
	}
	return withTokens(*state, func(ctx context.Context, book *token.Book) error {
		switch {
		case verb == "create" && f.NArg() == 0:
			return createToken(ctx, book, *name, *owner, *scopes, *lifetime, stdout, stderr)
		case verb == "list" && f.NArg() == 0:
			return listTokens(ctx, book, *owner, stdout)
		case verb == "revoke" && f.NArg() == 1:
			return revokeToken(ctx, book, f.Arg(0), stderr)
		}
		return errors.New("there is token create, token list and token revoke ID; see: baileyd token --help")
	})
}

// withTokens opens the store itself, so that a token can be made before the
// server runs, and revoked although it does not answer. A server that runs sees
// the change with the next request.
func withTokens(state string, do func(context.Context, *token.Book) error) (err error) {
	state, err = absolute(state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := store.Open(ctx, database(state))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(ctx, token.In(db))
}

func createToken(ctx context.Context, book *token.Book, name, owner, scopes string, lifetime time.Duration, stdout, stderr io.Writer) error {
	if lifetime < 0 {
		return errors.New("a token's lifetime is not negative")
	}
	var list []caller.Scope
	for s := range strings.SplitSeq(scopes, ",") {
		list = append(list, caller.Scope(strings.TrimSpace(s)))
	}
	text, info, err := book.Create(ctx, name, owner, list, lifetime)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "token %s of %s, shown only now:\n", info.ID, plain.Text(info.Owner))
	_, err = fmt.Fprintln(stdout, text)
	return err
}

func listTokens(ctx context.Context, book *token.Book, owner string, stdout io.Writer) error {
	all, err := book.List(ctx, owner)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "OWNER", "NAME", "SCOPES", "CREATED", "EXPIRES"}}
	for _, t := range all {
		rows = append(rows, []string{t.ID, plain.Text(t.Owner), orDash(plain.Text(t.Name)), joined(t.Scopes), day(t.Created), day(t.Expires)})
	}
	for _, line := range columns.Align(rows) {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			return err
		}
	}
	return nil
}

func revokeToken(ctx context.Context, book *token.Book, which string, stderr io.Writer) error {
	info, err := book.Revoke(ctx, which)
	if err == nil {
		fmt.Fprintf(stderr, "token %s of %s holds no longer\n", info.ID, plain.Text(info.Owner))
	}
	return err
}

func joined(scopes []caller.Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ",")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func day(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04")
}
