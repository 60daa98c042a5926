package server

import (
	"context"
	"errors"
	"io"
	"os"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/api/httpbody"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	files "github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// Archives of sandboxes go through a file without a name, in both directions: a
// slow client must not keep a sandbox from ending, and what arrives only in part
// changes nothing.

// UploadArchive implements the API.
func (s *Server) UploadArchive(ctx context.Context, from *connect.ClientStream[baileyv1.UploadArchiveRequest]) (*baileyv1.UploadArchiveResponse, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	if !from.Receive() {
		return nil, errors.Join(from.Err(), problem.Invalid("sandbox_id", "the first message names the sandbox"))
	}
	first := from.Msg()
	id, name := first.GetSandboxId(), first.GetPath()
	name, err := cleanPath("path", name)
	if err != nil {
		return nil, err
	}
	k, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	left, err := s.mayStore(ctx, k.sandbox.GetOwner(), 0)
	if err != nil {
		return nil, err
	}
	passing, err := s.passing()
	if err != nil {
		return nil, err
	}
	defer passing.Close()
	if err := passing.take(uploaded(from, first.GetArchive().GetData())); err != nil {
		return nil, err
	}
	dir, release, err := s.sandboxTree(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	count, err := unpack(dir, name, passing, left)
	s.unmeasured(k.sandbox.GetOwner())
	return &baileyv1.UploadArchiveResponse{FileCount: count}, err
}

// uploaded is the body of an upload.
func uploaded(from *connect.ClientStream[baileyv1.UploadArchiveRequest], first []byte) io.Reader {
	return &pieced{first: first, next: func() ([]byte, error) {
		if from.Receive() {
			return from.Msg().GetArchive().GetData(), nil
		}
		if err := from.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}}
}

// unpack unpacks an archive of at most so many bytes over what is in a directory, and
// counts its entries.
func unpack(dir *os.File, name string, from *passing, most int64) (count int64, err error) {
	if err := makeDirs(dir, name, 0o755); err != nil {
		return 0, err
	}
	to, err := openBeneath(dir, name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return 0, fileError(name, err)
	}
	defer to.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(to.Fd()), &st); err != nil {
		return 0, fileError(name, err)
	}
	o := archive.ReadOptions{
		Form: archive.Plain, Over: true, Limits: archive.Limits{Bytes: min(int64(st.Bavail)*st.Bsize, most)},
		Progress: func(files, _ int64) { count = files },
	}
	if err := archive.Read(from, to, o); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, archive.ErrTooLarge) {
			return 0, noSpace(err)
		}
		return 0, importError(err)
	}
	return count, nil
}

// noSpace is the answer where neither the disk nor the owner's share of it has room.
func noSpace(err error) error {
	return problem.New(connect.CodeResourceExhausted, "no_space", err,
		problem.Remedy("send less, or remove what is not needed: GetUsage tells what the owner may store"))
}

// DownloadArchive implements the API.
func (s *Server) DownloadArchive(ctx context.Context, r *baileyv1.DownloadArchiveRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return err
	}
	name, err := cleanPath("path", r.GetPath())
	if err != nil {
		return err
	}
	passing, err := s.passing()
	if err != nil {
		return err
	}
	defer passing.Close()
	if err := s.pack(ctx, r.GetSandboxId(), name, passing); err != nil {
		return err
	}
	if _, err := passing.Seek(0, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	_, err = io.CopyBuffer(&sent{to}, struct{ io.Reader }{passing}, buf)
	return err
}

func (s *Server) pack(ctx context.Context, id, name string, to *passing) error {
	dir, release, err := s.sandboxTree(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	from, err := openBeneath(dir, name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return fileError(name, err)
	}
	defer from.Close()
	hidden, err := hiddenIn(from)
	if err != nil {
		return fileError(name, err)
	}
	if err := archive.WriteReadable(to, []*os.File{from}, archive.Plain, hidden); err != nil {
		var full *connect.Error
		if errors.As(err, &full) {
			return full
		}
		if errors.Is(err, unix.EACCES) {
			return problem.New(connect.CodePermissionDenied, "file_protected", err, problem.Remedy("have its owner read it (chmod u+r in the sandbox), or archive another directory"))
		}
		return failed("cannot_be_archived", err, problem.Remedy("try again, or take a snapshot and export it: a command may have changed files meanwhile"))
	}
	return nil
}

// hiddenIn returns what says of a file that may not be read whether the policy is the
// reason: it shows it through a view, or something in its place. A file that its own
// mode keeps even its owner from is not for an archive to pass over.
func hiddenIn(dir *os.File) (func(*files.Node) bool, error) {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &system); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	return func(n *files.Node) bool { return system.Type == unix.FUSE_SUPER_MAGIC || n.Stat.Dev != st.Dev }, nil
}

// passing is a file without a name, which is gone when it is closed. It takes no
// more than half of what is free on the disk: others write there, too.
type passing struct {
	*os.File
	left int64
}

func (s *Server) passing() (*passing, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.spool(), &st); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.spool(), "archive")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &passing{f, int64(st.Bavail) * st.Bsize / 2}, nil
}

func (p *passing) Write(b []byte) (int, error) {
	if p.left -= int64(len(b)); p.left < 0 {
		return 0, problem.New(connect.CodeResourceExhausted, "no_space", errors.New("the archive is larger than what is free on the disk"), problem.Remedy("send it in parts"))
	}
	return p.File.Write(b)
}

// take keeps a body, to be read from its beginning.
func (p *passing) take(body io.Reader) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{p}, body, make([]byte, 256<<10)); err != nil {
		return err
	}
	_, err := p.Seek(0, io.SeekStart)
	return err
}
