package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/pull"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// runImages is "bailey image", and what "bailey run --image" becomes if the image is not
// here yet.
func runImages(args []string, stdout, stderr io.Writer) int {
	f, err := host.New()
	if err != nil {
		return answer(stderr, "bailey: "+err.Error()+"\n", exitOwn)
	}
	i := images{image.Store{Dir: image.Dir(sandbox.DataDir(f.Caller.Home))}, stdout, stderr}
	switch {
	case len(args) == 1 && args[0] == "list":
		err = i.list()
	case len(args) > 1 && args[0] == "pull":
		err = i.each(args[1:], i.pull)
	case len(args) > 1 && args[0] == "remove":
		err = i.each(args[1:], i.remove)
	case len(args) > 1 && args[0] == "run":
		err = i.run(args[1], args[2:])
	default:
		err = fmt.Errorf("usage: bailey image list|pull IMAGE…|remove IMAGE…")
	}
	if err != nil {
		return answer(stderr, "bailey: "+plain.Text(err.Error())+"\n", exitOwn)
	}
	return 0
}

type images struct {
	store          image.Store
	stdout, stderr io.Writer
}

func (i *images) each(refs []string, do func(ref string) error) error {
	for _, ref := range refs {
		if err := do(ref); err != nil {
			return err
		}
	}
	return nil
}

// pull gets an image. Who interrupts it leaves nothing half done.
func (i *images) pull(ref string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	id, err := pull.Pull(ctx, i.store, ref, func(text string) { fmt.Fprintln(i.stderr, "bailey: "+plain.Text(text)) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(i.stdout, id)
	return err
}

func (i *images) remove(ref string) error {
	u, err := i.store.Begin()
	if err != nil {
		return err
	}
	defer u.Close()
	return u.Remove(ref)
}

// run gets an image and executes the command that wants it.
func (i *images) run(ref string, args []string) error {
	quiet := images{i.store, io.Discard, i.stderr}
	if err := quiet.pull(ref); err != nil {
		return fmt.Errorf("--image %s: %w", ref, err)
	}
	program := host.Beside("bailey")
	if program == "" {
		return fmt.Errorf("the program bailey is missing beside this one; install all programs of Bailey's into one directory: make install")
	}
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, append([]string{"bailey"}, args...), os.Environ()))
}

func (i *images) list() error {
	found, err := i.store.List()
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "SIZE", "PULLED", "NAMES"}}
	for _, f := range found {
		rows = append(rows, []string{strings.TrimPrefix(f.ID, "sha256:")[:12], columns.Size(f.Bytes), f.Pulled.Local().Format(time.DateTime), plain.Text(strings.Join(f.Names, " "))})
	}
	_, err = fmt.Fprintln(i.stdout, strings.Join(columns.Align(rows), "\n"))
	return err
}
