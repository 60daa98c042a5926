package conformance

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/testenv"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
)

// The sandboxes of a server are tried by the same suite. What is given to it as the
// bailey command is this program, which has a server run what it is told to: the project
// becomes a codebase, the policy that of a sandbox on it, the command is executed
// there, and what became of the workspace is put back where the project is.

// servedBy names the server that this program is to use in the place of a sandbox of its
// own.
const servedBy = "CONFORMANCE_SERVER"

// workspace is where a sandbox of a server has what the project was.
const workspace = "/workspace"

// shortly are the properties that are tried in every run of the tests, one of each kind of
// wall; with BAILEY_LONG all are.
var shortly = []string{
	"what is granted is written, what is not is not",
	"the home directory and /tmp are private",
	"a denied path inside a grant is not read",
	"git's hooks are not replaced by renaming what is above them",
	"signals reach the command",
	"no process outside is signalled",
	"a closed network reaches nothing of the host",
	"calls that no sandbox needs are refused",
	"there are no privileges to be had",
	"a limit of processes",
}

func TestSandboxesOfAServerHoldWhatTheCommandDoes(t *testing.T) {
	// The program that is sent to the server again and again is too large with the race
	// detector, which has nothing to see there.
	testenv.Requires(t, testenv.NoRace, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("git"))
	address := startServer(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := ParsePage(string(text))[user()]
	for _, name := range Served()[:testenv.Count(1, len(Served()))] {
		t.Run(name, func(t *testing.T) {
			r := Runtime{Name: name, Bailey: self, Env: []string{servedBy + "=" + address}}
			mustWork(t, r)
			tryServed(t, r, page[name])
		})
	}
}

// tryServed tries properties, and compares them with what the page says of the command.
func tryServed(t *testing.T, r Runtime, page map[string]string) {
	for _, property := range Properties() {
		want, why := ServedOutcome(r.Name, property.Name, Outcome(page[property.Name]))
		if want == "" || testenv.Count(0, 1) == 0 && !slices.Contains(shortly, property.Name) {
			continue
		}
		t.Run(strings.ReplaceAll(property.Name, " ", "-"), func(t *testing.T) {
			if got := try(t, r, property); got != want && !(property.Machine && got != Failed) {
				t.Errorf("%s over the API, want %s (%s)", got, want, why)
			}
		})
	}
}

func TestServedExceptionsAreProperties(t *testing.T) {
	for _, e := range ServedExceptions() {
		if !slices.ContainsFunc(Properties(), func(p Property) bool { return p.Name == e.Property }) {
			t.Errorf("there is no property %q", e.Property)
		}
	}
	for _, name := range shortly {
		if !slices.ContainsFunc(Properties(), func(p Property) bool { return p.Name == name }) {
			t.Errorf("there is no property %q", name)
		}
	}
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T) (address string) {
	t.Helper()
	c := exec.Command(testenv.Binary(t, "baileyd"), "serve", "--ephemeral", "--log-level", "error", "--pool", "0")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), c.Wait()); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "listening on unix:"); ok {
			address = at
		}
		if lines.Text() == "ready" {
			return address
		}
	}
	t.Fatal("the server ended before it was ready")
	return ""
}

// served is one run of a command over the API.
type served struct {
	http      *http.Client
	codebases baileyv1connect.CodebaseServiceClient
	sandboxes baileyv1connect.SandboxServiceClient
	execs     baileyv1connect.ExecServiceClient

	runtime, policy, dir string
	argv                 []string
	codebase, sandbox    string
}

// serve is the bailey command over the API: it returns the status that the command would
// have.
func serve(address string, args []string) (status int) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}}
	s := &served{http: &http.Client{Transport: transport}}
	s.codebases = baileyv1connect.NewCodebaseServiceClient(s.http, "http://localhost")
	s.sandboxes = baileyv1connect.NewSandboxServiceClient(s.http, "http://localhost")
	s.execs = baileyv1connect.NewExecServiceClient(s.http, "http://localhost")
	s.parse(args)
	ctx := context.Background()
	status, err := s.run(ctx)
	if err = errors.Join(err, s.end(ctx)); err != nil {
		fmt.Fprintf(os.Stderr, "bailey: %v\n", err)
		return foreground.Own
	}
	return status
}

// parse reads what Place.command writes. What is below the project is below the workspace
// inside.
func (s *served) parse(args []string) {
	for i, a := range args {
		switch a {
		case "--runtime":
			s.runtime = args[i+1]
		case "--policy":
			s.policy = args[i+1]
		case "--dir":
			s.dir = args[i+1]
		case "--":
			s.argv = args[i+1:]
		}
		if s.argv != nil {
			break
		}
	}
	s.policy = strings.ReplaceAll(s.policy, s.dir, workspace)
	for i := range s.argv {
		s.argv[i] = strings.ReplaceAll(s.argv[i], s.dir, workspace)
	}
}

func (s *served) run(ctx context.Context) (status int, err error) {
	c, err := s.codebases.CreateCodebase(ctx, &baileyv1.CreateCodebaseRequest{})
	if err != nil {
		return 0, err
	}
	s.codebase = c.GetId()
	if err := s.upload(ctx); err != nil {
		return 0, err
	}
	sb, err := s.sandboxes.CreateSandbox(ctx, &baileyv1.CreateSandboxRequest{
		Source: &baileyv1.CreateSandboxRequest_CodebaseId{CodebaseId: s.codebase}, Runtime: s.runtime, Policy: s.policy,
	})
	if p := problem.Of(err); p != nil {
		return 0, fmt.Errorf("%w; %s", err, p.GetRemedy())
	}
	if err != nil {
		return 0, err
	}
	s.sandbox = sb.GetId()
	if status, err = s.exec(ctx); err != nil {
		return 0, err
	}
	return status, s.putBack(ctx)
}

func (s *served) end(ctx context.Context) error {
	if s.sandbox != "" {
		_, err := s.sandboxes.DestroySandbox(ctx, &baileyv1.DestroySandboxRequest{SandboxId: s.sandbox, DeleteCodebase: true})
		return err
	}
	if s.codebase == "" {
		return nil
	}
	_, err := s.codebases.DeleteCodebase(ctx, &baileyv1.DeleteCodebaseRequest{CodebaseId: s.codebase})
	return err
}

// exec runs the command with the streams of this process, and passes signals on.
func (s *served) exec(ctx context.Context) (int, error) {
	command := &baileyv1.Command{Argv: s.argv}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		command.Terminal = &baileyv1.TerminalSize{Rows: uint32(size.Row), Columns: uint32(size.Col)}
	} else if command.Stdin, err = io.ReadAll(os.Stdin); err != nil {
		return 0, err
	}
	came := make(chan os.Signal, 8)
	signal.Notify(came, unix.SIGTERM, unix.SIGUSR1)
	stream, err := s.execs.StreamExec(ctx, &baileyv1.StreamExecRequest{SandboxId: s.sandbox, Command: command})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		if begun := m.GetStarted(); begun != nil {
			go s.pass(ctx, begun.GetExecId(), came)
		}
		if chunk := m.GetOutput(); chunk != nil {
			to := os.Stdout
			if chunk.GetStream() == baileyv1.Stream_STREAM_STDERR {
				to = os.Stderr
			}
			if _, err := to.Write(chunk.GetData()); err != nil {
				return 0, err
			}
		}
		if exit := m.GetExit(); exit != nil {
			if exit.GetTimedOut() {
				return foreground.TimedOut, nil
			}
			return int(exit.GetCode()), nil
		}
	}
	return 0, errors.Join(stream.Err(), errors.New("the end of the command was not told"))
}

// pass passes signals on until this process ends.
func (s *served) pass(ctx context.Context, id string, came <-chan os.Signal) {
	for sig := range came {
		name := unix.SignalName(sig.(unix.Signal))
		if _, err := s.execs.SignalExec(ctx, &baileyv1.SignalExecRequest{SandboxId: s.sandbox, ExecId: id, Signal: name}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// upload makes a codebase of the project. Sockets are no files.
func (s *served) upload(ctx context.Context) error {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(pack(w, s.dir, s.left())) }()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/codebases/"+s.codebase+"/archive", r)
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/x-tar")
	body, err := s.do(q)
	if err != nil {
		return err
	}
	return body.Close()
}

func (s *served) do(q *http.Request) (io.ReadCloser, error) {
	res, err := s.http.Do(q)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body) // as much as there is
		return nil, errors.Join(fmt.Errorf("%s: %s", res.Status, text), res.Body.Close())
	}
	return res.Body, nil
}

// left is the program that a probe runs, if this is none: it is larger than all the rest.
func (s *served) left() string {
	if slices.Contains(s.argv, workspace+"/"+programName) {
		return ""
	}
	return filepath.Join(s.dir, programName)
}

// pack writes what is in a directory, but for a file that is left out.
func pack(to io.Writer, dir, left string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || path == left || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if d.Type()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	return errors.Join(err, w.Close())
}

// putBack makes the project what the workspace is, if that has changed, so that what a
// command did is seen where it is looked for.
func (s *served) putBack(ctx context.Context) error {
	applied, err := s.sandboxes.ApplySandbox(ctx, &baileyv1.ApplySandboxRequest{SandboxId: s.sandbox})
	if err != nil || len(applied.GetChanges()) == 0 {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/codebases/"+s.codebase+"/archive", nil)
	if err != nil {
		return err
	}
	body, err := s.do(q)
	if err != nil {
		return err
	}
	defer body.Close()
	next := s.dir + ".next"
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	if err := unpack(body, next); err != nil {
		return err
	}
	if left := s.left(); left != "" {
		if err := os.Rename(left, filepath.Join(next, programName)); err != nil {
			return err
		}
	}
	old := s.dir + ".old"
	return errors.Join(os.Rename(s.dir, old), os.Rename(next, s.dir), os.RemoveAll(old))
}

func unpack(from io.Reader, dir string) error {
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, h.Name)
		mode := h.FileInfo().Mode()
		switch {
		case h.Typeflag == tar.TypeDir:
			err = errors.Join(os.MkdirAll(path, 0o700), os.Chmod(path, mode.Perm()|0o700))
		case h.Typeflag == tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case h.Typeflag == tar.TypeLink:
			err = os.Link(filepath.Join(dir, h.Linkname), path)
		case mode.IsRegular():
			err = unpackFile(r, path, mode)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(from io.Reader, path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
