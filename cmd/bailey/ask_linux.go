package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// asker asks the person at the terminal about hosts, one at a time.
type asker struct {
	tty     *terminal.Session // of the command, or nil
	repaint func()            // tells a full-screen program to paint again
	// always returns the file in which a host can be allowed for good, or "" if
	// there is none that would hold for this command.
	always func() string

	mu sync.Mutex
}

// newAsker returns nil if there is nobody to ask.
func newAsker(r *request, tty *terminal.Session, compiled bool, repaint func()) *asker {
	if !terminal.HasCaller() {
		return nil
	}
	a := &asker{tty: tty, repaint: repaint, always: func() string { return "" }}
	if compiled {
		a.always = sync.OnceValue(r.alwaysFile)
	}
	return a
}

// askFunc is nil for an asker that is.
func (a *asker) askFunc() gate.AskFunc {
	if a == nil {
		return nil
	}
	return a.ask
}

// askLater makes an asker when the first question comes.
func askLater(make func() *asker) gate.AskFunc {
	made := sync.OnceValue(make)
	return func(ctx context.Context, q config.Message) string {
		if a := made(); a != nil {
			return a.ask(ctx, q)
		}
		return config.Unanswered
	}
}

// ask puts a question of the network gate until it is answered.
func (a *asker) ask(ctx context.Context, q config.Message) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return config.Unanswered
	}
	defer a.repaint()
	file := a.always()
	if q.Rule != nil && !strings.HasPrefix(q.Rule.Where, plain.Text(file)+":") {
		file = "" // the rule would still ask
	}
	text := questionText(q)
	for {
		line, err := terminal.Ask(ctx, a.tty, text+choices(file))
		switch {
		case errors.Is(err, terminal.ErrInterrupted):
			return config.Refusing
		case err != nil:
			return config.Unanswered
		}
		text = "  "
		switch answer := strings.ToLower(strings.TrimSpace(line)); {
		case answer == "o" || answer == "once":
			return config.Once
		case answer == "r" || answer == "run":
			return config.ForRun
		case answer == "d" || answer == "deny":
			return config.Refusing
		case file != "" && (answer == "a" || answer == "always"):
			if err := allowAlways(file, q); err == nil {
				return config.ForRun
			} else {
				text = "bailey: it could not be written: " + plain.Text(err.Error()) + "\n  "
				file = ""
			}
		}
	}
}

// questionText says what is asked for. What it names may have been made up by
// the command.
func questionText(q config.Message) string {
	text := "bailey: may the command reach " + plain.Word(q.Host)
	if q.Port != 0 {
		text += " on port " + strconv.Itoa(int(q.Port))
	}
	text += "?"
	if q.Rule != nil {
		text += " (" + plain.Text(q.Rule.Name) + " asks"
		if q.Rule.Where != "" {
			text += ", " + plain.Text(q.Rule.Where)
		}
		text += ")"
	}
	return text + "\n  "
}

func choices(file string) string {
	text := "[o]nce, for this [r]un, "
	if file != "" {
		text += "[a]lways (" + plain.Word(file) + "), "
	}
	return text + "[d]eny: "
}

// alwaysFile is the user's own policy, if the command runs under it: under any
// other, or one that a project's file takes away from, an entry there would
// change nothing.
func (r *request) alwaysFile() string {
	facts, err := host.New()
	if err != nil {
		return ""
	}
	m, err := r.manager()
	if err != nil {
		return ""
	}
	l := m.Loaded()
	if l.Project != "" && l.Status != policy.Trusted {
		return ""
	}
	file := policy.UserFile(sandbox.ConfigHome(facts.Caller.Home))
	for _, link := range l.Chain {
		if link.Kind == policy.KindUser && link.Name == file {
			return file
		}
	}
	return ""
}

// allowAlways adds a host to the user's policy. Others who do the same wait.
func allowAlways(file string, q config.Message) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(real))
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return os.NewSyscallError("flock", err)
	}
	old, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	merged, err := learn.Host{Name: q.Host, Port: q.Port, Rule: q.Rule}.Allow(file, old)
	if err != nil {
		return err
	}
	return replaceFile(real, merged)
}
