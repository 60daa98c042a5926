package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	files "github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// beneath is how every path is resolved: whatever links the sandbox has made, and
// however it changes them meanwhile, nothing outside the tree is reached.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// openBeneath opens a path in a tree.
func openBeneath(dir *os.File, name string, flags int) (*os.File, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: beneath}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, how)
		if err == unix.EINTR || err == unix.EAGAIN { // a name was renamed on the way
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// named is a path of a request: whose tree, and where in it.
type named interface {
	GetSandboxId() string
	GetCodebaseId() string
	GetPath() string
	GetRawPath() []byte
}

// pathOf is the path of a request, relative to the tree; "." is its top.
func pathOf(r named) (string, error) {
	name := r.GetPath()
	if len(r.GetRawPath()) > 0 {
		name = string(r.GetRawPath())
	}
	return cleanPath("path", name)
}

func cleanPath(field, name string) (string, error) {
	if strings.Contains(name, "\x00") {
		return "", problem.Invalid(field, "it has a NUL byte")
	}
	if rest, ok := strings.CutPrefix(name, workspaceDir); ok && (rest == "" || rest[0] == '/') {
		name = strings.TrimLeft(rest, "/")
	}
	if strings.HasPrefix(name, "/") {
		return "", problem.Invalid(field, "%q is not below %s", name, workspaceDir)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", problem.Invalid(field, "%q has a part ..", name)
		}
	}
	return path.Clean(name), nil
}

// edit changes something in the tree of a request. Of a codebase that makes a new
// version.
func (s *Server) edit(ctx context.Context, r named, change func(dir *os.File, name string) (*baileyv1.FileInfo, error)) (info *baileyv1.FileInfo, err error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	name, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	if id := r.GetCodebaseId(); id != "" {
		err := s.editCodebase(ctx, id, func(dir *os.File) (err error) {
			info, err = change(dir, name)
			return err
		})
		return info, err
	}
	dir, release, err := s.sandboxTree(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer release()
	return change(dir, name)
}

// tree opens the tree of a request to be read, and its path in it.
func (s *Server) tree(ctx context.Context, r named) (dir *os.File, name string, release func(), err error) {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return nil, "", nil, err
	}
	if name, err = pathOf(r); err != nil {
		return nil, "", nil, err
	}
	if r.GetCodebaseId() != "" {
		dir, release, err = s.codebaseTree(ctx, r.GetCodebaseId())
	} else {
		dir, release, err = s.sandboxTree(ctx, r.GetSandboxId())
	}
	return dir, name, release, err
}

// fileError is an error about a file as clients see it.
func fileError(name string, err error) error {
	if err == nil {
		return nil
	}
	name = strings.ToValidUTF8(name, "\uFFFD")
	about := problem.About("path", name)
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	err = fmt.Errorf("%s: %w", name, errno)
	switch errno {
	case unix.ENOENT:
		return problem.New(connect.CodeNotFound, "file_not_found", err, about)
	case unix.EEXIST:
		return problem.New(connect.CodeAlreadyExists, "file_exists", err, about)
	case unix.EXDEV, unix.ELOOP:
		return problem.New(connect.CodeInvalidArgument, "outside", fmt.Errorf("%s leads out of the tree, or through a link that does", name), about, problem.Remedy("name the file itself"))
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return problem.New(connect.CodePermissionDenied, "file_protected", err, about)
	case unix.ENOSPC, unix.EDQUOT:
		return problem.New(connect.CodeResourceExhausted, "no_space", err, about)
	case unix.ENOTDIR, unix.EISDIR, unix.ENOTEMPTY, unix.EBUSY, unix.ETXTBSY, unix.ENXIO:
		return failed("file_kind", err, about)
	case unix.ENAMETOOLONG, unix.EINVAL:
		return problem.New(connect.CodeInvalidArgument, "invalid_path", err, about)
	}
	return err
}

// describe says what an entry of a directory is.
func describeFile(dir *os.File, entry, name string) (*baileyv1.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), entry, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fileError(name, err)
	}
	info := &baileyv1.FileInfo{
		Path: strings.ToValidUTF8(name, "\uFFFD"), Mode: st.Mode & 0o7777, ModifyTime: timestamppb.New(timeOf(st.Mtim)),
		Type: baileyv1.FileType_FILE_TYPE_OTHER,
	}
	if !utf8.ValidString(name) {
		info.RawPath = []byte(name)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type, info.SizeBytes = baileyv1.FileType_FILE_TYPE_FILE, st.Size
	case unix.S_IFDIR:
		info.Type = baileyv1.FileType_FILE_TYPE_DIRECTORY
	case unix.S_IFLNK:
		info.Type = baileyv1.FileType_FILE_TYPE_SYMLINK
		buf := make([]byte, unix.PathMax)
		if n, err := unix.Readlinkat(int(dir.Fd()), entry, buf); err == nil {
			info.LinkTarget = strings.ToValidUTF8(string(buf[:n]), "\uFFFD")
		}
	}
	return info, nil
}

// parent opens the directory of a path that is to be made, changed or removed,
// and returns its last name.
func parent(dir *os.File, name string) (*os.File, string, error) {
	if name == "." {
		return nil, "", problem.Invalid("path", "it is the whole tree")
	}
	above, entry := path.Split(name)
	if above == "" {
		above = "."
	}
	p, err := openBeneath(dir, path.Clean(above), unix.O_DIRECTORY|unix.O_RDONLY)
	return p, entry, fileError(name, err)
}

// StatFile implements the API.
func (s *Server) StatFile(ctx context.Context, r *baileyv1.StatFileRequest) (*baileyv1.FileInfo, error) {
	dir, name, release, err := s.tree(ctx, r)
	if err != nil {
		return nil, err
	}
	defer release()
	if name == "." {
		return describeFile(dir, ".", name)
	}
	p, entry, err := parent(dir, name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return describeFile(p, entry, name)
}

// ListFiles implements the API.
func (s *Server) ListFiles(ctx context.Context, r *baileyv1.ListFilesRequest) (*baileyv1.ListFilesResponse, error) {
	dir, name, release, err := s.tree(ctx, r)
	if err != nil {
		return nil, err
	}
	defer release()
	l := &listing{ctx: ctx, tree: dir, recursive: r.GetRecursive()}
	if err := l.page(r.GetPageSize(), r.GetPageToken()); err != nil {
		return nil, err
	}
	if err := l.list(name); err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return &baileyv1.ListFilesResponse{Files: l.files, NextPageToken: l.next}, nil
}

// GlobFiles implements the API.
func (s *Server) GlobFiles(ctx context.Context, r *baileyv1.GlobFilesRequest) (*baileyv1.GlobFilesResponse, error) {
	pattern, err := cleanPattern(r.GetPattern())
	if err != nil {
		return nil, err
	}
	dir, name, release, err := s.tree(ctx, r)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := isDirectory(dir, name); err != nil {
		return nil, err
	}
	// What is fixed at the beginning of a pattern need not be looked for.
	fixed, rest := doublestar.SplitPattern(pattern)
	below := path.Join(name, fixed)
	l := &listing{ctx: ctx, tree: dir, recursive: strings.Contains(rest, "/") || strings.Contains(rest, "**")}
	l.matches = func(full string) bool {
		if below != "." {
			full = strings.TrimPrefix(full, below+"/")
		}
		return doublestar.MatchUnvalidated(rest, full)
	}
	if err := l.page(r.GetPageSize(), r.GetPageToken()); err != nil {
		return nil, err
	}
	err = l.list(below)
	if code := connect.CodeOf(err); err != nil && below != name && (code == connect.CodeNotFound || problem.Of(err).GetReason() == "file_kind") {
		err = nil // nothing is there that could match
	}
	if err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	return &baileyv1.GlobFilesResponse{Files: l.files, NextPageToken: l.next}, nil
}

// cleanPattern is a pattern of a request, relative to a directory.
func cleanPattern(pattern string) (string, error) {
	if pattern == "" {
		return "", problem.Invalid("pattern", "it is missing")
	}
	clean, err := cleanPath("pattern", pattern)
	if err == nil && !doublestar.ValidatePattern(clean) {
		err = problem.Invalid("pattern", "%q is no pattern: a bracket or brace is not closed, or a backslash is last", pattern)
	}
	return clean, err
}

func isDirectory(tree *os.File, name string) error {
	d, err := openBeneath(tree, name, unix.O_DIRECTORY|unix.O_PATH)
	if err != nil {
		return fileError(name, err)
	}
	return d.Close()
}

// listing lists a directory in the order of paths, of which a page token is the
// last that was told.
type listing struct {
	ctx       context.Context
	tree      *os.File
	recursive bool
	matches   func(path string) bool // nil for everything
	after     string
	limit     int
	files     []*baileyv1.FileInfo
	next      string // the token of the next page
}

// page reads the paging of a request.
func (l *listing) page(size int32, token string) (err error) {
	after, err := hex.DecodeString(token)
	if err != nil {
		return problem.Invalid("page_token", "not a place in this list; begin again without it")
	}
	l.after = string(after)
	l.limit, err = pageSize(size, 1000, 10_000)
	return err
}

var errFull = errors.New("the page is full")

func (l *listing) list(name string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	dir, err := openBeneath(l.tree, name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err != nil {
		return fileError(name, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fileError(name, err)
	}
	slices.Sort(names)
	for _, entry := range names {
		full := path.Join(name, entry)
		if l.after != "" && compare(full, l.after) < 0 && !strings.HasPrefix(l.after, full+"/") {
			continue
		}
		info, err := describeFile(dir, entry, full)
		if connect.CodeOf(err) == connect.CodeNotFound && err != nil {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		if err := l.add(info, full); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) add(info *baileyv1.FileInfo, full string) error {
	if (l.after == "" || compare(full, l.after) > 0) && (l.matches == nil || l.matches(full)) {
		if len(l.files) == l.limit {
			l.next = hex.EncodeToString([]byte(l.last())) // names need not be text
			return errFull
		}
		l.files = append(l.files, info)
	}
	if !l.recursive || info.GetType() != baileyv1.FileType_FILE_TYPE_DIRECTORY {
		return nil
	}
	err := l.list(full)
	if connect.CodeOf(err) == connect.CodeNotFound || connect.CodeOf(err) == connect.CodePermissionDenied {
		return nil // it went meanwhile, or nobody may look into it
	}
	return err
}

func (l *listing) last() string {
	f := l.files[len(l.files)-1]
	if len(f.GetRawPath()) > 0 {
		return string(f.GetRawPath())
	}
	return f.GetPath()
}

// compare orders paths part by part, as a walk through sorted directories does.
func compare(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// openRegular opens a file for reading. What is no file is refused, and not
// waited for.
func openRegular(dir *os.File, name string) (*os.File, int64, error) {
	f, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, 0, fileError(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = failed("file_kind", fmt.Errorf("%s is not a regular file", strings.ToValidUTF8(name, "\uFFFD")))
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// mostInOne is the largest content of one message.
const mostInOne = 16 << 20

// ReadFile implements the API.
func (s *Server) ReadFile(ctx context.Context, r *baileyv1.ReadFileRequest) (*baileyv1.ReadFileResponse, error) {
	if r.GetOffset() < 0 || r.GetLength() < 0 {
		return nil, problem.Invalid("offset", "offset and length are not negative")
	}
	dir, name, release, err := s.tree(ctx, r)
	if err != nil {
		return nil, err
	}
	defer release()
	f, size, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	length := max(size-r.GetOffset(), 0)
	if r.GetLength() > 0 {
		length = min(length, r.GetLength())
	}
	if length > mostInOne {
		return nil, problem.New(connect.CodeOutOfRange, "too_large", fmt.Errorf("%d bytes are more than one answer holds", length),
			problem.Remedy("read at most %d bytes at a time, or use DownloadFile", mostInOne))
	}
	data := make([]byte, length)
	n, err := f.ReadAt(data, r.GetOffset())
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fileError(name, err)
	}
	return &baileyv1.ReadFileResponse{Content: data[:n], SizeBytes: size}, nil
}

// DownloadFile implements the API.
func (s *Server) DownloadFile(ctx context.Context, r *baileyv1.DownloadFileRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	if r.GetOffset() < 0 {
		return problem.Invalid("offset", "it is negative")
	}
	dir, name, release, err := s.tree(ctx, r)
	if err != nil {
		return err
	}
	f, _, err := openRegular(dir, name)
	release() // a slow client must not keep a sandbox from ending
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for at := r.GetOffset(); ; {
		n, err := f.ReadAt(buf, at)
		if n > 0 {
			if err := to.Send(&httpbody.HttpBody{ContentType: "application/octet-stream", Data: buf[:n]}); err != nil {
				return err
			}
			at += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fileError(name, err)
		}
	}
}

// WriteFile implements the API.
func (s *Server) WriteFile(ctx context.Context, r *baileyv1.WriteFileRequest) (*baileyv1.FileInfo, error) {
	if len(r.GetContent()) > mostInOne {
		return nil, problem.Invalid("content", "it has more than %d bytes; use UploadFile", mostInOne)
	}
	if _, _, err := s.mayWrite(ctx, r, int64(len(r.GetContent()))); err != nil {
		return nil, err
	}
	return s.edit(ctx, r, func(dir *os.File, name string) (*baileyv1.FileInfo, error) {
		return writeFile(dir, name, r.GetMode(), r.GetMakeParents(), func(f *os.File) error {
			_, err := f.Write(r.GetContent())
			return err
		})
	})
}

// UploadFile implements the API.
func (s *Server) UploadFile(ctx context.Context, from *connect.ClientStream[baileyv1.UploadFileRequest]) (*baileyv1.FileInfo, error) {
	if !from.Receive() {
		return nil, errors.Join(from.Err(), problem.Invalid("path", "the first message names the file"))
	}
	first := from.Msg()
	owner, left, err := s.mayWrite(ctx, first, 0)
	if err != nil {
		return nil, err
	}
	write := func(file *os.File) error {
		f := &rationed{file, s, owner, left}
		_, err := f.Write(first.GetContent().GetData())
		for err == nil && from.Receive() {
			_, err = f.Write(from.Msg().GetContent().GetData())
		}
		if err == nil {
			err = from.Err()
		}
		return err
	}
	return s.edit(ctx, first, func(dir *os.File, name string) (*baileyv1.FileInfo, error) {
		return writeFile(dir, name, first.GetMode(), first.GetMakeParents(), write)
	})
}

// writeFile makes a file beside its place and puts it there when it is whole.
func writeFile(dir *os.File, name string, mode uint32, parents bool, write func(*os.File) error) (*baileyv1.FileInfo, error) {
	if parents {
		if err := makeDirs(dir, path.Dir(name), 0o755); err != nil {
			return nil, err
		}
	}
	p, entry, err := parent(dir, name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var st unix.Stat_t
	switch err := unix.Fstatat(int(p.Fd()), entry, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil, fileError(name, unix.EISDIR)
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG:
		mode = st.Mode
	case mode == 0:
		mode = 0o644
	}
	temporary := newID(temporaryName)
	fd, err := unix.Openat(int(p.Fd()), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fileError(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = write(f)
	if err == nil {
		err = unix.Fchmod(fd, mode&0o777)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = place(int(p.Fd()), temporary, entry, &st)
	}
	if err != nil {
		_ = unix.Unlinkat(int(p.Fd()), temporary, 0) // it is nobody's
		return nil, fileError(name, err)
	}
	return describeFile(p, entry, name)
}

// makeDirs makes a directory and those above it.
func makeDirs(dir *os.File, name string, mode uint32) error {
	if name == "." {
		return nil
	}
	if d, err := openBeneath(dir, name, unix.O_DIRECTORY|unix.O_PATH); err == nil {
		return d.Close()
	} else if !errors.Is(err, unix.ENOENT) {
		return fileError(name, err)
	}
	if err := makeDirs(dir, path.Dir(name), 0o755); err != nil {
		return err
	}
	p, entry, err := parent(dir, name)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := unix.Mkdirat(int(p.Fd()), entry, 0o700); err != nil && err != unix.EEXIST {
		return fileError(name, err)
	}
	made, err := openBeneath(p, entry, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return fileError(name, err)
	}
	defer made.Close()
	return fileError(name, unix.Fchmod(int(made.Fd()), mode&0o777))
}

// MakeDirectory implements the API.
func (s *Server) MakeDirectory(ctx context.Context, r *baileyv1.MakeDirectoryRequest) (*baileyv1.FileInfo, error) {
	mode := r.GetMode()
	if mode == 0 {
		mode = 0o755
	}
	return s.edit(ctx, r, func(dir *os.File, name string) (*baileyv1.FileInfo, error) {
		if err := makeDirs(dir, name, mode); err != nil {
			return nil, err
		}
		d, err := openBeneath(dir, name, unix.O_DIRECTORY|unix.O_PATH)
		if err != nil {
			return nil, fileError(name, err)
		}
		defer d.Close()
		return describeFile(d, ".", name)
	})
}

// RemoveFile implements the API.
func (s *Server) RemoveFile(ctx context.Context, r *baileyv1.RemoveFileRequest) (*emptypb.Empty, error) {
	_, err := s.edit(ctx, r, func(dir *os.File, name string) (*baileyv1.FileInfo, error) {
		return nil, removeFile(dir, name, r.GetRecursive())
	})
	return &emptypb.Empty{}, err
}

func removeFile(dir *os.File, name string, recursive bool) error {
	p, entry, err := parent(dir, name)
	if err != nil {
		return err
	}
	defer p.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(int(p.Fd()), entry, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileError(name, err)
	}
	switch {
	case recursive:
		err = files.Remove(p, entry)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = unix.Unlinkat(int(p.Fd()), entry, unix.AT_REMOVEDIR)
	default:
		err = unix.Unlinkat(int(p.Fd()), entry, 0)
	}
	return fileError(name, err)
}

// MoveFile implements the API.
func (s *Server) MoveFile(ctx context.Context, r *baileyv1.MoveFileRequest) (*baileyv1.FileInfo, error) {
	next := r.GetNewPath()
	if len(r.GetRawNewPath()) > 0 {
		next = string(r.GetRawNewPath())
	}
	next, err := cleanPath("new_path", next)
	if err != nil {
		return nil, err
	}
	return s.edit(ctx, r, func(dir *os.File, name string) (*baileyv1.FileInfo, error) {
		info, err := moveFile(dir, name, next)
		if once.Again(ctx) && connect.CodeOf(err) == connect.CodeNotFound {
			return statMoved(dir, next, err)
		}
		return info, err
	})
}

// statMoved is what is where an earlier server has moved it, or the error if nothing
// is.
func statMoved(dir *os.File, next string, failure error) (*baileyv1.FileInfo, error) {
	to, last, err := parent(dir, next)
	if err != nil {
		return nil, failure
	}
	defer to.Close()
	info, err := describeFile(to, last, next)
	if err != nil {
		return nil, failure
	}
	return info, nil
}

func moveFile(dir *os.File, name, next string) (*baileyv1.FileInfo, error) {
	from, entry, err := parent(dir, name)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, last, err := parent(dir, next)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	err = unix.Renameat(int(from.Fd()), entry, int(to.Fd()), last)
	if errors.Is(err, unix.EXDEV) { // the kernel's word for a directory of a lower layer
		return nil, failed("cannot_be_moved", fmt.Errorf("%s cannot be renamed where it is; copy it, and remove the old one", strings.ToValidUTF8(name, "\uFFFD")),
			problem.Remedy("run mv in the sandbox"))
	}
	if err != nil {
		return nil, fileError(name, err)
	}
	return describeFile(to, last, next)
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()) }
