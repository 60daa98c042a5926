package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/blob"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// A shared store has an archive for each layer, named by its SHA-256, and a list of
// those for each codebase.
func layerObject(digest string) string  { return "layers/" + digest + ".tar" }
func codebaseObject(name string) string { return "codebases/" + name + ".json" }

// remoteCodebase is what a shared store knows of a codebase.
type remoteCodebase struct {
	Version int      `json:"version"`
	Source  string   `json:"source,omitempty"`
	Layers  []string `json:"layers"` // digests, top first
}

const maxRemoteCodebase = 1 << 20

// Push copies a codebase to a shared store: the layers that are not there yet, and
// then its name.
func (s *Store) Push(ctx context.Context, to blob.Store, name string) error {
	release, err := s.LockLayers(false)
	if err != nil {
		return err
	}
	defer release()
	c, err := s.Codebase(name)
	if err != nil {
		return err
	}
	r := remoteCodebase{Version: codebaseVersion, Source: c.Source}
	for _, id := range c.Layers {
		digest, err := s.pushLayer(ctx, to, id)
		if err != nil {
			return fmt.Errorf("layer %s: %w", id, err)
		}
		r.Layers = append(r.Layers, digest)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return to.Put(ctx, codebaseObject(name), strings.NewReader(string(data)+"\n"))
}

func (s *Store) pushLayer(ctx context.Context, to blob.Store, id string) (digest string, err error) {
	if digest, err = s.Digest(id); err != nil {
		return "", err
	}
	if there, err := to.Has(ctx, layerObject(digest)); there || err != nil {
		return digest, err
	}
	root, err := os.Open(s.LayerTree(id))
	if err != nil {
		return "", err
	}
	defer root.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive.Write(w, []*os.File{root}, archive.OCI)) }()
	err = to.Put(ctx, layerObject(digest), r)
	_ = r.CloseWithError(errors.New("nobody reads any more")) // ends the writer
	return digest, err
}

// Pull makes a codebase of one in a shared store. Layers that are here already are
// not fetched; of the others every byte is checked against the digest.
func (s *Store) Pull(ctx context.Context, from blob.Store, remote string, o ImportOptions) (Codebase, error) {
	if err := delta.ValidName(remote); err != nil {
		return Codebase{}, err
	}
	if o.Name == "" {
		o.Name = remote
	}
	if err := s.checkNew(o.Name); err != nil {
		return Codebase{}, err
	}
	r, err := readRemote(ctx, from, remote)
	if err != nil {
		return Codebase{}, fmt.Errorf("codebase %s: %w", remote, err)
	}
	release, err := s.LockLayers(false)
	if err != nil {
		return Codebase{}, err
	}
	defer release()
	c := Codebase{Name: o.Name, Source: r.Source}
	for _, digest := range r.Layers {
		if err := s.pullLayer(ctx, from, digest, o); err != nil {
			return Codebase{}, fmt.Errorf("layer %s: %w", digest, err)
		}
		c.Layers = append(c.Layers, contentID(digest))
	}
	return s.saveCodebase(c)
}

func readRemote(ctx context.Context, from blob.Store, name string) (remoteCodebase, error) {
	var r remoteCodebase
	in, err := from.Get(ctx, codebaseObject(name))
	if err != nil {
		return r, err
	}
	defer in.Close()
	if err := json.NewDecoder(io.LimitReader(in, maxRemoteCodebase)).Decode(&r); err != nil {
		return r, err
	}
	if r.Version != codebaseVersion || len(r.Layers) == 0 {
		return r, errors.New("it is of another version of Bailey")
	}
	for _, digest := range r.Layers {
		if b, err := hex.DecodeString(digest); err != nil || len(b) != sha256.Size || strings.ToLower(digest) != digest {
			return r, fmt.Errorf("%q is no digest", digest)
		}
	}
	return r, nil
}

// ErrDigest is returned for a layer that is not what its name says.
var ErrDigest = errors.New("its content is not what its digest says")

func (s *Store) pullLayer(ctx context.Context, from blob.Store, digest string, o ImportOptions) error {
	if _, err := s.Layer(contentID(digest)); err == nil {
		return nil
	}
	in, err := from.Get(ctx, layerObject(digest))
	if err != nil {
		return err
	}
	defer in.Close()
	if o.Limits.Bytes == 0 {
		if o.Limits.Bytes, err = s.free(); err != nil {
			return err
		}
	}
	b, err := s.build()
	if err != nil {
		return err
	}
	defer b.discard()
	hash := sha256.New()
	options := archive.ReadOptions{Form: archive.OCI, Limits: o.Limits, Progress: b.count(o.Progress)}
	if err := archive.Read(io.TeeReader(in, hash), b.root, options); err != nil {
		return err
	}
	if hex.EncodeToString(hash.Sum(nil)) != digest {
		return ErrDigest
	}
	b.layer.ID, b.layer.Digest = contentID(digest), digest
	b.share()
	return b.place()
}
