package sdk

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// piece is how much of a file is sent in one message.
const piece = 256 << 10

// ReadFile returns a whole file of the workspace, of any size.
func (s *Sandbox) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return s.client.readFile(ctx, &baileyv1.DownloadFileRequest{SandboxId: s.ID(), Path: path})
}

// ReadCodebaseFile returns a whole file of a codebase.
func (c *Client) ReadCodebaseFile(ctx context.Context, codebase, path string) ([]byte, error) {
	return c.readFile(ctx, &baileyv1.DownloadFileRequest{CodebaseId: codebase, Path: path})
}

func (c *Client) readFile(ctx context.Context, r *baileyv1.DownloadFileRequest) ([]byte, error) {
	stream, err := c.Files.DownloadFile(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	content := []byte{}
	for stream.Receive() {
		content = append(content, stream.Msg().GetData()...)
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return content, nil
}

// WriteFile replaces or makes a file of the workspace, and directories above it
// that are missing. Readers see the old content or the new, never a part.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content io.Reader) (*baileyv1.FileInfo, error) {
	stream, err := s.client.Files.UploadFile(ctx)
	if err != nil {
		return nil, err
	}
	first := &baileyv1.UploadFileRequest{SandboxId: s.ID(), Path: path, MakeParents: true}
	if err := stream.Send(first); err == nil || errors.Is(err, io.EOF) {
		err = sendPieces(content, func(data []byte) error {
			return stream.Send(&baileyv1.UploadFileRequest{Content: &httpbody.HttpBody{Data: data}})
		})
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndReceive()
}

// WatchFiles tells what changes in a directory of the workspace, from now on, and
// with recursive in those below it, until the directory or the sandbox has gone.
// FILE_CHANGE_KIND_LOST says that one has to look again; it comes first, and after a
// lost connection, which is taken up again.
func (s *Sandbox) WatchFiles(ctx context.Context, path string, recursive bool) iter.Seq2[*baileyv1.FileChange, error] {
	r := &baileyv1.WatchFilesRequest{SandboxId: s.ID(), Path: path, Recursive: recursive}
	return persistent(ctx, func(ctx context.Context) (*connect.ServerStreamForClient[baileyv1.FileChange], error) {
		return s.client.Files.WatchFiles(ctx, r)
	}, func(*baileyv1.FileChange) {})
}

// Download writes a directory of the workspace as a tar archive; an empty path is all of
// it.
func (s *Sandbox) Download(ctx context.Context, path string, to io.Writer) error {
	return receive(to)(s.client.Files.DownloadArchive(ctx, &baileyv1.DownloadArchiveRequest{SandboxId: s.ID(), Path: path}))
}

// sendPieces reads to the end. That the server wants no more is no error: its
// answer says why.
func sendPieces(from io.Reader, send func([]byte) error) error {
	buffer := make([]byte, piece)
	for {
		n, err := io.ReadFull(from, buffer)
		if n > 0 {
			if serr := send(buffer[:n]); errors.Is(serr, io.EOF) {
				return nil
			} else if serr != nil {
				return serr
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// StatFile says what a path is.
func (s *Sandbox) StatFile(ctx context.Context, path string) (*baileyv1.FileInfo, error) {
	return s.client.Files.StatFile(ctx, &baileyv1.StatFileRequest{SandboxId: s.ID(), Path: path})
}

// ListFiles lists a directory, and with recursive what is below it.
func (s *Sandbox) ListFiles(ctx context.Context, path string, recursive bool) ([]*baileyv1.FileInfo, error) {
	r := &baileyv1.ListFilesRequest{SandboxId: s.ID(), Path: path, Recursive: recursive}
	return pages(ctx, s.client.Files.ListFiles, r, &r.PageToken, (*baileyv1.ListFilesResponse).GetFiles)
}

// GlobFiles lists what matches a pattern such as "src/**/*.go" in a directory of the
// workspace; an empty path is the top.
func (s *Sandbox) GlobFiles(ctx context.Context, path, pattern string) ([]*baileyv1.FileInfo, error) {
	r := &baileyv1.GlobFilesRequest{SandboxId: s.ID(), Path: path, Pattern: pattern}
	return pages(ctx, s.client.Files.GlobFiles, r, &r.PageToken, (*baileyv1.GlobFilesResponse).GetFiles)
}

// MakeDirectory makes a directory, and those above it that are missing.
func (s *Sandbox) MakeDirectory(ctx context.Context, path string) (*baileyv1.FileInfo, error) {
	return s.client.Files.MakeDirectory(ctx, &baileyv1.MakeDirectoryRequest{SandboxId: s.ID(), Path: path})
}

// RemoveFile removes a file or, with recursive, a whole tree.
func (s *Sandbox) RemoveFile(ctx context.Context, path string, recursive bool) error {
	_, err := s.client.Files.RemoveFile(ctx, &baileyv1.RemoveFileRequest{SandboxId: s.ID(), Path: path, Recursive: recursive})
	return err
}

// MoveFile renames within the workspace.
func (s *Sandbox) MoveFile(ctx context.Context, path, newPath string) (*baileyv1.FileInfo, error) {
	return s.client.Files.MoveFile(ctx, &baileyv1.MoveFileRequest{SandboxId: s.ID(), Path: path, NewPath: newPath})
}

// Upload puts a local directory into a codebase, all of it or nothing.
func (c *Client) Upload(ctx context.Context, codebase, dir string) (*baileyv1.Codebase, error) {
	stream, err := c.Codebases.UploadCodebase(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&baileyv1.UploadCodebaseRequest{CodebaseId: codebase}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	archive, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(writer, dir)
		packed <- err
		_ = writer.CloseWithError(err)
	}()
	err = sendPieces(archive, func(data []byte) error {
		return stream.Send(&baileyv1.UploadCodebaseRequest{Archive: &httpbody.HttpBody{Data: data}})
	})
	_ = archive.Close()
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		err = perr
	}
	if err != nil {
		return nil, err
	}
	return stream.CloseAndReceive()
}

// pack writes a directory as a tar archive. What is neither a file, a directory
// nor a link means nothing elsewhere and is left out, as is who owns it.
func pack(to io.Writer, dir string) error {
	archive := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		return packEntry(archive, path, filepath.ToSlash(name), entry)
	})
	return errors.Join(err, archive.Close())
}

func packEntry(archive *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, header.Size)
	return errors.Join(err, file.Close())
}
