package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
)

// codebase is a codebase as it is stored. Each of its versions is a codebase of
// its own for package workspace, so that a version is there as a whole or not.
type codebase struct {
	record *store.Record
	*baileyv1.Codebase
}

// place is what package workspace calls the current version.
func (c *codebase) place() string { return placeOf(c.GetId(), c.GetVersion()) }

func placeOf(id string, version int64) string {
	if version == 0 {
		return emptyCodebase
	}
	return fmt.Sprintf("%s.%d", id, version)
}

func loadCodebase(r *store.Record) (*codebase, error) {
	c := &codebase{r, &baileyv1.Codebase{}}
	return c, legible("codebase", r, decode(r.Data, c.Codebase))
}

func (c *codebase) save() (err error) {
	c.record.Labels, c.record.Owner, c.record.State = c.GetLabels(), c.GetOwner(), c.GetName()
	c.record.Created = c.GetCreateTime().AsTime()
	c.record.Data, err = encode(c.Codebase)
	return err
}

// CreateCodebase implements the API.
func (s *Server) CreateCodebase(ctx context.Context, r *baileyv1.CreateCodebaseRequest) (*baileyv1.Codebase, error) {
	who := caller.From(ctx)
	if err := who.Demand(caller.Write); err != nil {
		return nil, err
	}
	owner, err := who.ActFor(r.GetOwner())
	if err != nil {
		return nil, err
	}
	id := madeID(ctx, "cb")
	if once.Again(ctx) {
		if made, err := s.GetCodebase(ctx, &baileyv1.GetCodebaseRequest{CodebaseId: id}); err == nil {
			return made, nil
		}
	}
	now := timestamppb.Now()
	c := &codebase{&store.Record{Kind: store.Codebases, ID: id}, nil}
	c.Codebase = &baileyv1.Codebase{Id: c.record.ID, Name: r.GetName(), Owner: owner, Labels: r.GetLabels(), CreateTime: now, UpdateTime: now}
	err = c.save()
	if err == nil {
		err = s.store.Commit(ctx, store.Put(c.record))
	}
	if err == nil {
		err = s.store.Sync(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c.Codebase, nil
}

// GetCodebase implements the API.
func (s *Server) GetCodebase(ctx context.Context, r *baileyv1.GetCodebaseRequest) (*baileyv1.Codebase, error) {
	record, err := s.find(ctx, store.Codebases, "codebase", r.GetCodebaseId())
	if err != nil {
		return nil, err
	}
	c, err := loadCodebase(record)
	if err != nil {
		return nil, err
	}
	return c.Codebase, nil
}

// ListCodebases implements the API.
func (s *Server) ListCodebases(ctx context.Context, r *baileyv1.ListCodebasesRequest) (*baileyv1.ListCodebasesResponse, error) {
	q := store.Query{Kind: store.Codebases}
	if r.GetName() != "" {
		q.States = []string{r.GetName()} // several may have the same name
	}
	if err := page(&q, r.GetPageSize(), r.GetPageToken()); err != nil {
		return nil, err
	}
	if err := chooseLabels(&q, r.GetLabels()); err != nil {
		return nil, err
	}
	p, err := s.list(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &baileyv1.ListCodebasesResponse{NextPageToken: p.Next}
	for _, record := range p.Records {
		c, err := loadCodebase(record)
		if err != nil {
			s.setAside(err)
			continue
		}
		out.Codebases = append(out.Codebases, c.Codebase)
	}
	return out, nil
}

// DeleteCodebase implements the API.
func (s *Server) DeleteCodebase(ctx context.Context, r *baileyv1.DeleteCodebaseRequest) (*emptypb.Empty, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	id := r.GetCodebaseId()
	end := s.turns.take(id)
	defer end()
	record, err := s.find(ctx, store.Codebases, "codebase", id)
	if err != nil {
		return nil, err
	}
	places, err := s.placesOf(record)
	if err != nil {
		return nil, err
	}
	n, err := s.store.Count(ctx, store.Query{Kind: store.Sandboxes, Parent: id})
	if err != nil {
		return nil, err
	}
	if n > 0 {
		return nil, failed("codebase_in_use", fmt.Errorf("%d sandboxes use the codebase", n), problem.About("codebase_id", id), problem.Remedy("destroy them first"))
	}
	if err := s.store.Commit(ctx, store.Delete(record)); err != nil {
		return nil, err
	}
	for _, place := range places {
		s.endView(place)
		err = errors.Join(err, s.dropVersion(place))
	}
	return &emptypb.Empty{}, err
}

// placesOf are the versions that a codebase has: one, unless its record cannot be
// read; then all that are there.
func (s *Server) placesOf(r *store.Record) (places []string, err error) {
	if c, err := loadCodebase(r); err == nil {
		return []string{c.place()}, nil
	}
	list, err := s.files.Codebases()
	for _, c := range list {
		if strings.HasPrefix(c.Name, r.ID+".") {
			places = append(places, c.Name)
		}
	}
	return places, err
}

// dropVersion removes the files of a version that nobody can ask for any more.
func (s *Server) dropVersion(place string) error {
	if place == emptyCodebase {
		return nil
	}
	err := s.files.RemoveCodebase(place)
	if errors.Is(err, workspace.ErrNoCodebase) {
		return nil
	}
	return err
}

// advance makes the next version of a codebase.
func (s *Server) advance(ctx context.Context, id string, build func(c *codebase, place string) (workspace.Codebase, error), further ...store.Change) (*baileyv1.Codebase, error) {
	end := s.turns.take(id)
	defer end()
	record, err := s.find(ctx, store.Codebases, "codebase", id)
	if err != nil {
		return nil, err
	}
	c, err := loadCodebase(record)
	if err != nil {
		return nil, err
	}
	left, err := s.mayStore(ctx, c.GetOwner(), 0)
	if err != nil {
		return nil, err
	}
	old, before := c.place(), c.GetSizeBytes()
	next := placeOf(id, c.GetVersion()+1)
	if err := s.dropVersion(next); err != nil { // of a server that was killed before it said so
		return nil, err
	}
	made, err := build(c, next)
	if err != nil {
		return nil, err
	}
	c.Version++
	c.UpdateTime = timestamppb.New(time.Now())
	c.FileCount, c.SizeBytes = 0, 0
	for _, layer := range made.Layers {
		if l, err := s.files.Layer(layer); err == nil {
			c.FileCount += l.Files
			c.SizeBytes += l.Bytes
		}
	}
	if more := c.GetSizeBytes() - before; more > left {
		return nil, errors.Join(s.storageFull(c.GetOwner(), s.config.Quota.Storage-left+more), s.dropVersion(next))
	}
	s.tookUp(c.GetOwner(), c.GetSizeBytes()-before)
	if err = c.save(); err == nil {
		err = s.store.Commit(ctx, append(further, store.Put(c.record))...)
	}
	if err == nil {
		err = s.store.Sync(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.dropVersion(next))
	}
	s.endView(old)
	return c.Codebase, s.dropVersion(old)
}

// importError tells a bad archive from a failure of the server's.
func importError(err error) error {
	var e *connect.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	if errors.Is(err, archive.ErrTooLarge) {
		return noSpace(err)
	}
	return problem.New(connect.CodeInvalidArgument, "invalid_archive", err, problem.Remedy("send a tar archive, plain or compressed with gzip"))
}

// UploadCodebase implements the API.
func (s *Server) UploadCodebase(ctx context.Context, from *connect.ClientStream[baileyv1.UploadCodebaseRequest]) (*baileyv1.Codebase, error) {
	if err := caller.From(ctx).Demand(caller.Write); err != nil {
		return nil, err
	}
	if !from.Receive() {
		return nil, errors.Join(from.Err(), problem.Invalid("codebase_id", "the first message names the codebase"))
	}
	first := from.Msg()
	replace := first.GetReplace()
	body := &pieced{first: first.GetArchive().GetData(), next: func() ([]byte, error) {
		if from.Receive() {
			return from.Msg().GetArchive().GetData(), nil
		}
		if err := from.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}}
	return s.advance(ctx, first.GetCodebaseId(), func(c *codebase, place string) (workspace.Codebase, error) {
		o := workspace.ImportOptions{Name: place, Source: "upload"}
		var made workspace.Codebase
		left, err := s.mayStore(ctx, c.GetOwner(), 0)
		if err != nil {
			return made, err
		}
		o.Limits.Bytes = left
		if replace || c.GetVersion() == 0 {
			made, err = s.files.ImportArchive(body, o)
		} else {
			made, err = s.files.ImportLayer(body, c.place(), o)
		}
		return made, importError(err)
	})
}

// pieced is a body that comes in messages.
type pieced struct {
	first []byte
	next  func() ([]byte, error)
}

func (p *pieced) Read(b []byte) (int, error) {
	for len(p.first) == 0 {
		data, err := p.next()
		if err != nil {
			return 0, err
		}
		p.first = data
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// DownloadCodebase implements the API.
func (s *Server) DownloadCodebase(ctx context.Context, r *baileyv1.DownloadCodebaseRequest, to *connect.ServerStream[httpbody.HttpBody]) error {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return err
	}
	record, err := s.find(ctx, store.Codebases, "codebase", r.GetCodebaseId())
	if err != nil {
		return err
	}
	c, err := loadCodebase(record)
	if err != nil {
		return err
	}
	return s.files.ExportCodebase(&sent{to}, c.place(), archive.Plain)
}

// sent is a body that goes out in messages.
type sent struct {
	to *connect.ServerStream[httpbody.HttpBody]
}

func (w *sent) Write(b []byte) (int, error) {
	if err := w.to.Send(&httpbody.HttpBody{ContentType: "application/x-tar", Data: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ImportCodebase implements the API.
func (s *Server) ImportCodebase(ctx context.Context, r *baileyv1.ImportCodebaseRequest) (*baileyv1.Codebase, error) {
	who := caller.From(ctx)
	if err := who.Demand(caller.Write); err != nil {
		return nil, err
	}
	if err := mayImport(who, r); err != nil {
		return nil, err
	}
	return s.advance(ctx, r.GetCodebaseId(), func(c *codebase, place string) (workspace.Codebase, error) {
		if !r.GetReplace() && c.GetVersion() > 0 {
			return workspace.Codebase{}, failed("codebase_not_empty", errors.New("the codebase has files already"), problem.Remedy("set replace"))
		}
		o := workspace.ImportOptions{Name: place, GitIgnore: r.GetRespectGitignore(), History: r.GetGit().GetIncludeHistory()}
		var made workspace.Codebase
		var err error
		if r.GetGit() != nil {
			made, err = s.files.ImportGit(s.bailey(), r.GetGit().GetUrl(), r.GetGit().GetRef(), o)
		} else {
			made, err = s.files.ImportDirectory(r.GetDirectory(), o)
		}
		if err != nil {
			err = failed("cannot_be_imported", err, problem.Remedy("check that the server can read it"))
		}
		return made, err
	})
}

// mayImport refuses what a caller may not have imported. Files of the server's
// machine are for administrators, as is what only that machine can reach: others
// name a host, which must then be a public one.
func mayImport(who caller.Caller, r *baileyv1.ImportCodebaseRequest) error {
	git := r.GetGit()
	if git == nil {
		if err := who.Demand(caller.Admin); err != nil {
			return err
		}
		if !filepath.IsAbs(r.GetDirectory()) {
			return problem.Invalid("directory", "%q is not an absolute path", r.GetDirectory())
		}
		return nil
	}
	u, err := url.Parse(git.GetUrl())
	remote := err == nil && (u.Scheme == "https" || u.Scheme == "http")
	if !remote && !filepath.IsAbs(git.GetUrl()) {
		return problem.Invalid("url", "%q is neither an http or https address nor an absolute path", git.GetUrl())
	}
	if remote && isPublicName(u.Hostname()) {
		return nil
	}
	return who.Demand(caller.Admin)
}

// isPublicName says whether a host is a name below a domain, and no way to write
// an address.
func isPublicName(host string) bool {
	i := strings.LastIndexByte(host, '.')
	return i > 0 && i+1 < len(host) && unicode.IsLetter(rune(host[i+1])) && !strings.Contains(host, ":")
}

// bailey is the command that git is run with.
func (s *Server) bailey() string {
	if s.config.Keeper != "" {
		return filepath.Join(filepath.Dir(s.config.Keeper), "bailey")
	}
	return host.Beside("bailey")
}
