package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// guardName is what a guard is called, by which Become knows it.
const guardName = "bailey-docker-guard"

// Descriptors of a guard besides the command's streams.
const (
	guardControl = 3 // socket to whoever started it
	guardOrder   = 4 // what it is to do
)

// order is what a guard is to do.
type order struct {
	Spec     spec.Spec
	Name     string // of the runtime, as policies say it
	Runtime  string // of the engine
	Umask    int
	Terminal [3]bool // streams that are the terminal
	Termios  *unix.Termios
	Size     *unix.Winsize
	Account  bool // what is used is counted
}

// What a guard says, with what belongs to it.
const (
	saysFailed  = 'f' // why there is no container
	saysGate    = 'g' // the gate's socket
	saysPorts   = 'p' // the roles of the gate's ports, and these
	saysBegun   = 'b' // from here on the command may run
	saysAsks    = 'l' // who asks the broker, and the listener by which they do
	saysStarted = 's'
	saysNotRun  = 'x' // the error: the command could not be executed
	saysUsed    = 'u' // what it has used
	saysEnded   = 'e' // its wait status; nothing is left of the container
	saysKilled  = 'k' // it did not end by itself; nothing is left
)

// Become does what a process of this package's is for, if this process is one, and returns
// the status to exit with. A program with these engines calls it before all else.
func Become() (status int, is bool) {
	switch {
	case os.Args[0] == guardName:
		return guard(), true
	case os.Args[0] == oci.InitPath && len(os.Args) == 1:
		return first(), true
	}
	return 0, false
}

// guard makes a container, stays until the command has ended or nobody waits for it any
// more, and takes everything down.
func guard() int {
	// Whoever wants it to end says so by its socket. It is the only one who cleans up.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	for _, fd := range []int{guardControl, guardOrder} {
		unix.CloseOnExec(fd)
	}
	g := &keeper{signals: make(chan unix.Signal, 64), used: limits.Unknown()}
	err := g.receive()
	if err == nil {
		err = g.carry()
	}
	if err != nil {
		g.say(saysFailed, []byte(err.Error()), nil)
		return 1
	}
	return 0
}

// keeper is a guard at work.
type keeper struct {
	order
	api     *client.Client
	owner   string
	dir     string // the stage
	plan    *plan
	id      string // of the container, once there is one
	signals chan unix.Signal
	streams *streams
	ended   client.ContainerWaitResult
	door    int // the socket by which a listener comes, or 0
	leave   int // the socket by which the first process has leave to run, or 0
	used    limits.Usage
}

func (g *keeper) receive() error {
	data, err := io.ReadAll(os.NewFile(guardOrder, "order"))
	if err == nil {
		err = wire.Decode(data, &g.order)
	}
	return err
}

// carry runs the command to its end. Whatever happens, nothing is left afterwards.
func (g *keeper) carry() (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go g.listen(cancel)
	if g.owner, err = ownerName(os.Getpid()); err != nil {
		return err
	}
	if g.api, err = (&Engine{name: g.Name, runtime: g.Runtime}).dial(); err != nil {
		return err
	}
	told, err := g.build(ctx)
	if err == nil {
		told, err = g.follow(ctx)
	}
	if err := errors.Join(err, g.remove()); err != nil {
		return err
	}
	g.conclude(told)
	return nil
}

// build makes the container and starts it.
func (g *keeper) build(ctx context.Context) (told oci.Told, err error) {
	sweepStages()
	if g.dir, err = makeStage(g.owner); err != nil {
		return told, err
	}
	if g.plan, err = planFor(&g.Spec, g.dir, g.Runtime, g.owner, g.Terminal == whole); err != nil {
		return told, err
	}
	image := make(chan error, 1)
	go func() { image <- g.prepareEngine(ctx) }()
	if err := errors.Join(g.furnish(), <-image); err != nil {
		return told, err
	}
	made, err := g.api.ContainerCreate(ctx, client.ContainerCreateOptions{Config: g.plan.config, HostConfig: g.plan.host})
	if err != nil {
		return told, fmt.Errorf("make the container: %w", err)
	}
	g.id = made.ID
	seen, err := g.api.ContainerInspect(ctx, g.id, client.ContainerInspectOptions{})
	if err != nil {
		return told, fmt.Errorf("look at the container: %w", err)
	}
	if err := check(&seen.Container, &g.Spec, g.plan); err != nil {
		return told, err
	}
	return told, g.start(ctx)
}

// prepareEngine does what the engine has to do before, while the stage is filled.
func (g *keeper) prepareEngine(ctx context.Context) (err error) {
	g.sweepContainers(ctx)
	g.plan.config.Image, err = ensureImage(ctx, g.api, g.plan.entries)
	return err
}

// furnish fills the stage.
func (g *keeper) furnish() error {
	o := firstOrder{
		First: oci.First{Exec: g.Spec.Exec, Argv: g.Spec.Argv, Env: g.Spec.Env, Dir: g.Spec.Dir, Stream: -1, Lingers: g.Account},
		Umask: g.Umask, Mounts: g.plan.mounts, Second: g.Runtime == runsc,
	}
	if g.Terminal == whole {
		o.First.Stream, o.Termios, o.Size = 0, g.Termios, g.Size
	}
	var err error
	if o.First.Walls, err = oci.WallsOf(&g.Spec, kindOf(g.Runtime)); err != nil {
		return err
	}
	o.First.Door = doorPath
	if hasLeave(kindOf(g.Runtime)) {
		o.Leave = leavePath
	}
	if err := g.plan.furnish(g.dir, wire.Append(nil, o)); err != nil {
		return err
	}
	if g.Spec.Gate != nil && g.Spec.Gate.Socket != "" {
		fd, err := oci.Listen(g.dir)
		if err != nil {
			return err
		}
		g.say(saysGate, nil, unix.UnixRights(fd))
		_ = unix.Close(fd)
	}
	if hasDoor(&g.Spec, kindOf(g.Runtime)) {
		if g.door, err = oci.ListenAtDoor(g.dir); err != nil {
			return err
		}
	}
	if hasLeave(kindOf(g.Runtime)) {
		if g.leave, err = oci.ListenForLeave(g.dir); err != nil {
			return err
		}
	}
	return g.plan.narrow()
}

// attendDoor hands on the listener that the first process sends, before there is a
// command. Nobody else is let in.
func (g *keeper) attendDoor() {
	conn, _, err := unix.Accept4(g.door, unix.SOCK_CLOEXEC)
	_ = unix.Close(g.door)
	if err != nil {
		return
	}
	fd, from, err := oci.ReceiveListener(conn)
	if err != nil {
		_ = unix.Close(conn)
		return
	}
	g.say(saysAsks, wire.Append(nil, *from), unix.UnixRights(fd))
	_ = unix.Close(fd)
	oci.AnswerDoor(conn)
}

// start starts the container with somebody at its streams, and somebody who waits for its
// end.
func (g *keeper) start(ctx context.Context) error {
	conn, err := g.api.ContainerAttach(ctx, g.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach to the container: %w", err)
	}
	g.streams = relay(conn.HijackedResponse, g.Terminal == whole, func() { g.kill(unix.SIGPIPE) })
	g.ended = g.api.ContainerWait(ctx, g.id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	g.say(saysBegun, nil, nil)
	if g.door > 0 {
		go g.attendDoor()
	}
	if _, err := g.api.ContainerStart(ctx, g.id, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start the container: %w", err)
	}
	if waits(&g.Spec) {
		if err := g.arrange(ctx); err != nil {
			return err
		}
	}
	if g.leave > 0 {
		go func() { _ = oci.GiveLeave(g.leave) }() // it may have ended, and never ask
	}
	return nil
}

// arrange makes what has to be made in the container before the first process goes on.
func (g *keeper) arrange(ctx context.Context) error {
	pidfd, err := g.openFirst(ctx)
	if err != nil || pidfd < 0 {
		return err
	}
	defer func() { _ = unix.Close(pidfd) }()
	if links := oci.LinksOf(&g.Spec); links != nil {
		if err := oci.PinLinks(pidfd, links); err != nil {
			return err
		}
	}
	if ports := oci.PortsOf(&g.Spec); ports != nil {
		if err := g.openPorts(pidfd, ports); err != nil {
			return err
		}
	}
	return nil
}

// openFirst returns a descriptor of the container's first process, or -1 if that has ended,
// which then said why. The number may be another's by the time that it is used, so the
// engine is asked again.
func (g *keeper) openFirst(ctx context.Context) (int, error) {
	number := func() (int, error) {
		seen, err := g.api.ContainerInspect(ctx, g.id, client.ContainerInspectOptions{})
		if err != nil {
			return 0, fmt.Errorf("look at the container: %w", err)
		}
		if seen.Container.State == nil || !seen.Container.State.Running {
			return 0, nil
		}
		return seen.Container.State.Pid, nil
	}
	pid, err := number()
	if err != nil || pid <= 0 {
		return -1, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, nil
	}
	again, err := number()
	if err != nil || again != pid {
		_ = unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

// openPorts makes the ports of the network gate in the network of the container's first
// process, and hands them over.
func (g *keeper) openPorts(pidfd int, ports *spec.Spec) error {
	list, err := oci.OpenPorts(pidfd, ports)
	if err != nil {
		return err
	}
	roles, rights := oci.HandPorts(list)
	g.say(saysPorts, []byte(roles), rights)
	for _, l := range list {
		_ = l.File.Close()
	}
	return nil
}

// follow waits for what the first process tells, and passes signals on, until the
// container is gone.
func (g *keeper) follow(ctx context.Context) (oci.Told, error) {
	records, err := watch(filepath.Join(g.dir, "status"))
	if err != nil {
		return oci.Told{}, err
	}
	if g.Terminal == whole {
		g.followSize(ctx)
	}
	started, counted := false, !g.Account
	for {
		select {
		case _, ok := <-records:
			if !ok {
				records = nil
			}
			told, err := g.told()
			if err == nil && told.Started && !started {
				started = true
				g.say(saysStarted, nil, nil)
			}
			if err == nil && told.IsOver() && !counted {
				counted = true
				g.count(ctx)
			}
		case sig := <-g.signals:
			g.kill(sig)
		case <-ctx.Done():
			return oci.Told{}, errors.New("nobody waits for the command any more")
		case <-g.ended.Result:
			return g.finish()
		case err := <-g.ended.Error:
			return oci.Told{}, fmt.Errorf("wait for the container: %w", err)
		}
	}
}

// count reads what the container has used while there still is one, and ends it: its first
// process waits for that.
func (g *keeper) count(ctx context.Context) {
	seen, err := g.api.ContainerInspect(ctx, g.id, client.ContainerInspectOptions{})
	if err == nil && seen.Container.State != nil {
		g.used, _ = limits.UsageOf(seen.Container.State.Pid) // what cannot be read is not known
	}
	g.kill(unix.SIGKILL)
}

// finish takes in what is left when the container is gone.
func (g *keeper) finish() (oci.Told, error) {
	g.id = ""
	g.streams.finish()
	told, err := g.told()
	if err == nil && told.Refused != "" {
		err = errors.New(told.Refused)
	}
	if err == nil && !told.Started && told.Failed == 0 {
		err = errors.New("the container's first process ended before the command began")
	}
	return told, err
}

// told reads what the first process has told.
func (g *keeper) told() (oci.Told, error) {
	data, err := os.ReadFile(filepath.Join(g.dir, "status"))
	if err != nil {
		return oci.Told{}, err
	}
	if strings.HasPrefix(string(data), complaint) {
		return oci.Told{}, errors.New(string(data))
	}
	return oci.ReadTold(data), nil
}

// conclude says how the command ended, after all is gone.
func (g *keeper) conclude(told oci.Told) {
	switch {
	case told.Failed != 0:
		g.say(saysNotRun, number64(uint64(told.Failed)), nil)
	case told.Ended:
		g.say(saysStarted, nil, nil) // it may have been too short to be seen
		if told.Used != nil {
			g.used.Complete(told.Used)
		}
		g.say(saysUsed, wire.Append(nil, g.used), nil)
		g.say(saysEnded, number64(uint64(uint32(told.Wait))), nil)
	default:
		g.say(saysStarted, nil, nil)
		g.say(saysKilled, nil, nil)
	}
}

func number64(n uint64) []byte { return binary.NativeEndian.AppendUint64(nil, n) }

// remove takes everything down, however far it had come.
func (g *keeper) remove() error {
	var found []error
	if g.id != "" {
		found = append(found, g.removeContainer(g.id))
	}
	if g.streams != nil {
		g.streams.finish()
	}
	if g.dir != "" {
		found = append(found, removeStage(g.dir))
	}
	return errors.Join(found...)
}

// removeContainer ends a container and waits until nothing is left of it.
func (g *keeper) removeContainer(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gone := g.api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	_, err := g.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err): // the engine is at it
		select {
		case <-gone.Result:
		case <-gone.Error:
		}
		return nil
	}
	return err
}

// sweepContainers removes containers whose guard was killed.
func (g *keeper) sweepContainers(ctx context.Context) {
	list, err := g.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", ownerLabel)})
	if err != nil {
		return // the engine says more about what follows
	}
	for _, c := range list.Items {
		if isOrphan(c.Labels[ownerLabel]) {
			_ = g.removeContainer(c.ID)
		}
	}
}

// kill sends a signal to the first process, which passes it on; SIGKILL ends everything.
func (g *keeper) kill(sig unix.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// It may just have ended.
	_, _ = g.api.ContainerKill(ctx, g.id, client.ContainerKillOptions{Signal: strconv.Itoa(int(sig))})
}

// followSize gives the container's terminal the size of the one outside, whose session
// this process leads for that.
func (g *keeper) followSize(ctx context.Context) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
		return
	}
	go func() {
		for {
			if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil && (g.Size == nil || *size != *g.Size) {
				g.Size = size
				_, _ = g.api.ContainerResize(ctx, g.id, client.ContainerResizeOptions{Height: uint(size.Row), Width: uint(size.Col)})
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// listen takes in signals for the command, each a byte, until whoever started this process
// is gone.
func (g *keeper) listen(gone func()) {
	var sig [1]byte
	for {
		n, err := unix.Read(guardControl, sig[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			gone()
			return
		}
		g.signals <- unix.Signal(sig[0])
	}
}

// say tells whoever started this process, who may be gone.
func (g *keeper) say(what byte, text, rights []byte) {
	_ = unix.Sendmsg(guardControl, append([]byte{what}, text...), rights, nil, unix.MSG_NOSIGNAL)
}
