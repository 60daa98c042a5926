package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/token"
	"github.com/bailey-sandbox/bailey/internal/server/transport"
	"github.com/bailey-sandbox/bailey/internal/store"
)

const serveUsage = `Usage: baileyd serve [FLAGS]

Serves sandboxes to programs. Without flags it listens at a unix socket that only
this user can reach, and asks nobody there for a token. It ends at SIGTERM, after
requests have finished; sandboxes go on for a while, and the next server takes
them over. At SIGHUP it makes place for the program as it is on the disk now,
which goes on with the same sockets.

`

// options are what a server was told.
type options struct {
	state, images                string
	logLevel, logFormat          string
	listen, hosts, origins       texts
	public, plaintext, ephemeral bool
	certificate, key, clientCA   string
	collector                    string
	pool                         int
	quota                        server.Quota
	usual, most                  server.Allotment
	drainTime, orphanTime        time.Duration
}

// texts are the values of a flag that can be given several times.
type texts []string

func (t *texts) String() string { return fmt.Sprint([]string(*t)) }

func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

func readOptions(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	f := newFlags("serve", serveUsage, stdout)
	f.StringVar(&o.state, "state", defaultState(), "the server's `directory`")
	f.StringVar(&o.images, "images", defaultImages(), "`directory` of images that sandboxes can be made of, as bailey image pull fills it")
	f.Var(&o.listen, "listen", "`address` to listen at, unix:/PATH or HOST:PORT; can be given several times (default unix:STATE/server.sock)")
	f.BoolVar(&o.public, "public", false, "let other machines reach the addresses")
	f.BoolVar(&o.plaintext, "plaintext", false, "even without TLS, because a proxy in front has it")
	f.StringVar(&o.certificate, "tls-cert", "", "`file` with the certificate; a new one is taken up without a restart")
	f.StringVar(&o.key, "tls-key", "", "`file` with its key")
	f.StringVar(&o.clientCA, "tls-client-ca", "", "`file` with the authority whose certificate every client must show")
	f.Var(&o.hosts, "host", "`name` by which clients call the server, besides localhost; can be given several times")
	f.Var(&o.origins, "origin", "`origin` of web pages that may call the server; can be given several times")
	f.DurationVar(&o.drainTime, "drain-timeout", 30*time.Second, "how long requests may take to finish at the end")
	f.IntVar(&o.pool, "pool", 8, "`number` of sandboxes that may be made before they are asked for; 0 is none")
	f.Var((*count)(&o.quota.Sandboxes), "owner-sandboxes", "`number` of sandboxes that an owner may have; 0 is any")
	f.Var((*count)(&o.quota.Execs), "owner-execs", "`number` of commands that an owner may run at once; 0 is any")
	f.Var((*size)(&o.quota.Storage), "owner-storage", "`size`, such as 20G, that codebases, snapshots and changes of an owner may take; 0 is any")
	f.Var((*rate)(&o.quota.Rate), "owner-rate", "`number` of requests that an owner may send in a second; 0 is any")
	f.Var((*size)(&o.usual.Memory), "default-memory", "`size`, such as 1G, of memory for a sandbox that asks for none; 0 is as --max-memory")
	f.Var((*rate)(&o.usual.CPU), "default-cpu", "`number` of processors, such as 0.5, for a sandbox that asks for none; 0 is as --max-cpu")
	f.Var((*count)(&o.usual.Pids), "default-pids", "`number` of processes for a sandbox that asks for none; 0 is as --max-pids")
	f.Var((*size)(&o.most.Memory), "max-memory", "`size` of memory that a sandbox may ask for; 0 is any")
	f.Var((*rate)(&o.most.CPU), "max-cpu", "`number` of processors that a sandbox may ask for; 0 is any")
	f.Var((*count)(&o.most.Pids), "max-pids", "`number` of processes that a sandbox may ask for; 0 is any")
	f.DurationVar(&o.orphanTime, "orphan-timeout", 10*time.Minute, "how long sandboxes go on without a server")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error; debug has every request")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.collector, "otlp-endpoint", "", "`URL` of a collector that gets traces by OTLP over HTTP (default as $OTEL_EXPORTER_OTLP_ENDPOINT says, or none)")
	f.BoolVar(&o.ephemeral, "ephemeral", false, "keep everything in a new directory, and end, with all sandboxes, when standard input does; for SDKs")
	if err := parse(f, args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag; see: baileyd serve --help", f.Arg(0))
	}
	if (o.certificate == "") != (o.key == "") || (o.clientCA != "" && o.key == "") {
		return nil, errors.New("TLS needs both --tls-cert and --tls-key")
	}
	return o, nil
}

// defaultImages is where the images of the user are; empty if that is not known.
func defaultImages() string {
	home, err := os.UserHomeDir()
	if err != nil && os.Getenv("BAILEY_DATA") == "" {
		return ""
	}
	return image.Dir(sandbox.DataDir(home))
}

func serve(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := readOptions(args, stdout)
	if err != nil {
		return err
	}
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.ephemeral {
		end, err := o.makeEphemeral()
		if err != nil {
			return err
		}
		defer end()
		ctx = untilEOF(ctx, stdin)
	} else if o.state, err = absolute(o.state); err != nil {
		return err
	}
	successor, err := o.serve(ctx, log, stdout)
	if err != nil || successor == nil {
		return err
	}
	return successor.become()
}

// serve runs a server until it is told to end. If it is told to make place, it
// returns what comes after it.
func (o *options) serve(ctx context.Context, log *slog.Logger, stdout io.Writer) (next *successor, err error) {
	if err := checkDescriptors(); err != nil {
		return nil, err
	}
	if err := dropPrivileges(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return nil, err
	}
	exposure := transport.Exposure{Public: o.public, Plaintext: o.plaintext}
	if o.certificate != "" {
		id := transport.Identity{Certificate: o.certificate, Key: o.key, ClientCA: o.clientCA}
		if exposure.TLS, err = id.Config(log); err != nil {
			return nil, err
		}
	}
	// Clients that come before the server is ready wait in the kernel's queue.
	sockets, err := o.open(exposure)
	if err != nil {
		return nil, err
	}
	defer sockets.close()
	db, err := store.Open(ctx, database(o.state))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	spans, flush, err := openSpans(ctx, o.collector, log)
	if err != nil {
		return nil, err
	}
	defer flush()
	core, err := openCore(ctx, o, db, log)
	if err != nil {
		return nil, err
	}
	defer core.close()
	t, err := transport.New(transport.Config{
		Services: core.services(), Tokens: token.In(db), Requests: db, Journal: filepath.Join(o.state, "requests"), Log: log,
		Collectors: core.collectors(), Hosts: o.hosts, Origins: o.origins, Audit: o.audit(), Spans: spans,
		Rate: o.quota.Rate,
	})
	if err != nil {
		return nil, err
	}
	return o.run(ctx, t, sockets, exposure, stdout)
}

// run serves, from the moment at which it says so.
func (o *options) run(ctx context.Context, t *transport.Transport, sockets sockets, exposure transport.Exposure, stdout io.Writer) (*successor, error) {
	replaced := make(chan os.Signal, 1)
	signal.Notify(replaced, syscall.SIGHUP)
	defer signal.Stop(replaced)
	ctx, end := context.WithCancel(ctx)
	defer end()
	var next *successor
	decided := make(chan error, 1)
	go func() {
		defer end()
		select {
		case <-replaced:
			var err error
			next, err = sockets.successor()
			decided <- err
		case <-ctx.Done():
			decided <- nil
		}
	}()
	listeners := make([]net.Listener, len(sockets))
	for i, s := range sockets {
		listeners[i] = exposure.Secure(s.listener)
		fmt.Fprintf(stdout, "listening on %s\n", s.address)
	}
	fmt.Fprintln(stdout, "ready")
	if err := notifyManager("READY=1"); err != nil {
		return nil, err
	}
	err := t.Serve(ctx, o.drainTime, listeners...)
	end()
	return next, errors.Join(err, <-decided)
}

// audit returns where lines about requests go: a file beside the database, unless
// all of that ends with the server.
func (o *options) audit() io.Writer {
	if o.ephemeral {
		return nil
	}
	return &event.Audit{Dir: o.state}
}

func (o *options) logger(to io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("there is no log level %q: use debug, info, warn or error", o.logLevel)
	}
	settings := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(to, settings)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(to, settings)), nil
	}
	return nil, fmt.Errorf("there is no log format %q: use text or json", o.logFormat)
}

// makeEphemeral puts the state into a directory that ends with the server.
func (o *options) makeEphemeral() (end func(), err error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) {
		base = "" // the directory for temporary files
	}
	o.state, err = os.MkdirTemp(base, "bailey-server-")
	if err != nil {
		return nil, err
	}
	o.orphanTime = time.Second
	return func() { _ = os.RemoveAll(o.state) }, nil
}

// untilEOF returns a context that is done when there is nothing more to read,
// because the program at the other end has gone.
func untilEOF(ctx context.Context, from io.Reader) context.Context {
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer end()
		_, _ = io.Copy(io.Discard, from)
	}()
	return ctx
}

// leastDescriptors is what a server needs for a few hundred sandboxes.
const leastDescriptors = 4096

// checkDescriptors refuses to start where clients would soon be told "too many
// open files". The Go runtime has raised the soft limit to the hard one.
func checkDescriptors() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < leastDescriptors {
		return fmt.Errorf("at most %d files can be open, and a server needs %d: raise it with ulimit -Hn, or LimitNOFILE= in the unit", limit.Max, leastDescriptors)
	}
	return nil
}
